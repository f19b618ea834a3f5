"""What a missing order comes to, in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from syncverify.report.numbers import numbers_text

_ABOUT_NAN = (
    "nan stands for memory that is not written yet, or somebody else's by then, and for "
    "what is computed from it"
)


@dataclass(frozen=True, slots=True)
class Witness:
    """An order that the streams allow, and the wrong gradient that came of it.

    Attributes:
        order: What runs before what.
        outcome: Which gradient is wrong, and why.
        expected: Elements that it should have.
        observed: Elements that it has; None where there is no gradient.
    """

    order: str
    outcome: str
    expected: list[float] | None
    observed: list[float] | None

    def lines(self) -> Iterator[str]:
        """Describe it, ready to print."""
        yield f"when {self.order}:"
        yield self.outcome
        yield f"expected: {numbers_text(self.expected)}"
        yield f"observed: {numbers_text(self.observed)}"
        if any(map(math.isnan, self.observed or ())):
            yield _ABOUT_NAN

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "order": self.order,
            "outcome": self.outcome,
            "expected": self.expected,
            "observed": self.observed,
        }


@dataclass(frozen=True, slots=True)
class NoWitness:
    """No order that was played leads to a wrong gradient in this scenario.

    Attributes:
        num_orders: How many were.
        reasons: What else keeps harm from being shown.
    """

    num_orders: int
    reasons: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Describe it, ready to print."""
        yield (
            f"none: no wrong gradient in this scenario, in {self.num_orders} legal order(s) "
            "that were played; nothing forbids one in another"
        )
        yield from self.reasons

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"orders_played": self.num_orders, "reasons": [*self.reasons]}
