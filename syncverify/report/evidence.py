"""Evidence as JSON, and as events with their titles; a witness as text and as JSON."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Any, Final

from syncverify.judge.evidence import (
    DifferentReplicas,
    Disagreement,
    Disordered,
    Ended,
    Event,
    Evidence,
    Mistimed,
    Parting,
    PlayedAgain,
    ReducedTwice,
    TooFewElements,
    WrongGradient,
)
from syncverify.judge.ordering.races import EarlyFree
from syncverify.judge.properties.ordering_words import first_and_second
from syncverify.judge.violation import Violation
from syncverify.plain_text import counted, named
from syncverify.search.found_violation import NoWitness, Witness
from syncverify.trace.source_lines import with_code

_COMMON: Final = frozenset(each.name for each in fields(Evidence))
_ABOUT_NAN = (
    "nan: memory that is not written yet or has another owner, and values computed "
    "from it"
)
_MAX_LINES: Final = 3  # with unequal numbers of launches
_OF_GRADIENTS: Final = ("micro_batch", "is_proven", "is_certain", "readings")
# The keys with a meaning of null: no gradient, and no micro-batch.
_MAY_BE_NULL: Final = frozenset({"expected", "observed", "micro_batch"})


def titled_events(evidence: Evidence) -> Iterator[tuple[str, Sequence[Event]]]:
    """Yield lists of events, each with its title."""
    match evidence:
        case Disordered(events=(first, second)) | ReducedTwice(events=(first, second)):
            yield "first:", [first]
            yield "second:", [second]
            if isinstance(evidence, Disordered):
                yield "memory:", [Event(evidence.memory)]
                if evidence.remedy is not None:
                    yield "remedy:", [Event(evidence.remedy)]
                yield "", [*map(Event, evidence.streams)]
                yield "waits:", [*map(Event, evidence.waits)]
        case WrongGradient() | TooFewElements():
            yield "collective:", evidence.events
        case _:
            yield "", details(evidence)
    if evidence.parting is not None:
        first, *more = map(Event, _parted(evidence.parting))
        yield "parted:", [first]
        yield "", more


def _parted(parting: Parting) -> Iterator[str]:
    """Yield sentences on where ranks part."""
    if parting.last is not None:
        yield f"{named('rank', parting.ranks)} last met in {parting.last}"
    chains = [(way.launch.source, *way.launch.callers) for way in parting.crossed]
    if len({chain[0] for chain in chains}) == 1:
        yield f"likely, groups are met in opposite orders at {chains[0][0]}"
    differing = (lines for lines in zip_longest(*chains) if len({*lines}) > 1)
    for way, line in zip_longest(parting.crossed, next(differing, ())):
        place = f", at {line}" if line else ""
        yield f"first on {named('rank', way.ranks)}: {way.launch.group}{place}"
    for operation, line, times in parting.unequal[:_MAX_LINES]:
        ranks_by = dict[int, list[int]]()
        for rank, number in zip(parting.ranks, times, strict=True):
            ranks_by.setdefault(number, []).append(rank)
        words = (f"{number} on {named('rank', r)}" for number, r in ranks_by.items())
        yield f"launches so far of {operation} at {line}: {', '.join(words)}"


def details(evidence: Evidence) -> Sequence[Event]:
    """Return events without a title."""
    match evidence:
        case Disagreement(events=events):
            return events
        case Ended(details=lines):
            return [Event(str(line)) for line in lines]
        case PlayedAgain(first=first, again=again):
            return [Event(f"first: {first}"), Event(f"again: {again}")]
    return ()


def remedy_of(violation: Violation) -> str:
    """Return the waits that order two uses of memory; "" for any other violation."""
    evidence = violation.evidence
    return (evidence.remedy or "") if isinstance(evidence, Disordered) else ""


def evidence_json(cause: str, evidence: Evidence) -> dict[str, Any]:
    """Return plain values of the evidence of a cause for JSON, and the cause."""
    own = [
        each.name for each in fields(evidence) if each.repr and each.name not in _COMMON
    ]
    more = _OF_GRADIENTS if isinstance(evidence, WrongGradient) else ()
    facts = {name: getattr(evidence, name) for name in ("rank", "step", *own, *more)}
    values = {
        name: _plain(value)
        for name, value in {**facts, **evidence.facts}.items()
        if value is not None or name in _MAY_BE_NULL
        if not isinstance(value, Mapping)
    }
    code = {event.words: with_code(event.origins) for event in evidence.events}
    known = {words: [*map(str, lines)] for words, lines in code.items() if lines}
    found = {"cause": cause, **values, **_reshaped(evidence)}
    if evidence.parting is not None:
        found["parted"] = [*_parted(evidence.parting)]
    return {**found, "code": known} if known else found


def _reshaped(evidence: Evidence) -> dict[str, Any]:
    """Return the values that JSON has in another form."""
    match evidence:
        case DifferentReplicas(gradients=gradients):
            return {f"rank {rank}": values for rank, values in gradients.items()}
        case Mistimed(events=(Event(use=use),)):
            words = {"collective": str(use), "moment": str(use.moment) if use else ""}
            return {**words, "is_proven": True}
        case Disordered(events=(first, second)) | ReducedTwice(events=(first, second)):
            return {"first": first.words, "second": second.words}
        case WrongGradient(events=events) | TooFewElements(events=events):
            return {"collectives": [each.words for each in events]}
        case Disagreement(events=events):
            return {"details": [each.words for each in events], "is_proven": True}
        case PlayedAgain():
            return {"details": [event.words for event in details(evidence)]}
    return {}


def _plain(value: Any) -> Any:
    match value:
        case str() | int() | float() | None:
            return value
        case list() | tuple() if not hasattr(value, "_fields"):
            return [_plain(each) for each in value]
    return str(value)


def witness_lines(witness: Witness | NoWitness | None) -> Iterator[str]:
    """Yield the lines of a report about a witness; none for None."""
    if isinstance(witness, NoWitness):
        were = "was" if witness.num_orders == 1 else "were"
        orders = f"{counted(witness.num_orders, 'legal order')} of this scenario {were} played"
        yield (
            f"other scenarios have a wrong gradient (see `then`); {orders}, without one"
            if witness.is_elsewhere
            else "the missing order is the violation; no wrong gradient was shown: "
            + orders
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
    words = (str(int(e)) if e.is_integer() else repr(e) for e in values)
    return f"[{', '.join(words)}]"
