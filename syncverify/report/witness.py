"""A witness as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from syncverify.judge.ordering.races import EarlyFree
from syncverify.judge.properties.ordering_words import first_and_second
from syncverify.plain_text import counted
from syncverify.search.found_violation import NoWitness, Witness

_ABOUT_NAN = (
    "nan: memory that is not written yet or has another owner, and values computed "
    "from it"
)


def witness_lines(witness: Witness | NoWitness | None) -> Iterator[str]:
    """Yield the lines of a report about a witness; none for None."""
    if isinstance(witness, NoWitness):
        were = "was" if witness.num_orders == 1 else "were"
        orders = counted(witness.num_orders, "legal order")
        if witness.is_elsewhere:
            yield (
                f"other scenarios have a wrong gradient (see `then`); {orders} of this scenario "
                f"{were} played, without one"
            )
        else:
            yield (
                "the missing order is the violation; no wrong gradient was shown: "
                f"{orders} of this scenario {were} played"
            )
        yield from witness.reasons
    elif witness is not None:
        yield f"when {order_text(witness)}:"
        yield witness.outcome
        yield f"expected: {numbers_text(witness.expected)}"
        yield f"observed: {numbers_text(witness.observed)}"
        if any(map(math.isnan, witness.observed or ())):
            yield _ABOUT_NAN


def witness_json(witness: Witness | NoWitness) -> dict[str, Any]:
    """Return plain values for JSON."""
    if isinstance(witness, NoWitness):
        return {"orders_played": witness.num_orders, "reasons": [*witness.reasons]}
    return {
        "order": order_text(witness),
        "outcome": witness.outcome,
        "expected": witness.expected,
        "observed": witness.observed,
    }


def order_text(witness: Witness) -> str:
    """Return which work runs before which; the violation's own pair by its two names."""
    inverted = witness.inverted
    if inverted is None:
        return "everything runs in the order in which it was queued"
    late, early = (
        ("first", "second") if witness.is_of_violation else first_and_second(inverted)
    )
    if isinstance(inverted, EarlyFree):
        return f"{early} is written on rank {inverted.rank} before {late} has used it"
    return f"{early} runs before {late} on rank {inverted.rank}"


def numbers_text(values: list[float] | None) -> str:
    """Format elements, whole numbers without a fraction; None is no gradient at all."""
    if values is None:
        return "no gradient"
    return "[" + ", ".join(_number(value) for value in values) + "]"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
