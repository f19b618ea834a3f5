"""Evidence as JSON, and as events with their titles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from syncverify.judge.evidence import (
    DifferentReplicas,
    Disagreement,
    Disordered,
    Ended,
    Event,
    Evidence,
    Mistimed,
    PlayedAgain,
    ReducedTwice,
    TooFewElements,
    WrongGradient,
)
from syncverify.judge.violation import Violation
from syncverify.trace.source_lines import with_code

_COMMON: Final = frozenset(each.name for each in fields(Evidence))
_OF_GRADIENTS: Final = ("micro_batch", "is_proven", "is_certain", "readings")
# The keys with a meaning of null: no gradient, and no micro-batch.
_MAY_BE_NULL: Final = frozenset({"expected", "observed", "micro_batch"})


def titled_events(evidence: Evidence) -> Iterator[tuple[str, Sequence[Event]]]:
    """Yield lists of events, each with its title."""
    match evidence:
        case Disordered(events=(first, second)):
            yield "first:", [first]
            yield "second:", [second]
            yield "memory:", [Event(evidence.memory)]
            if evidence.remedy is not None:
                yield "remedy:", [Event(evidence.remedy)]
            yield "", [*map(Event, evidence.streams)]
            yield "waits:", [*map(Event, evidence.waits)]
        case ReducedTwice(events=(first, second)):
            yield "first:", [first]
            yield "second:", [second]
        case WrongGradient() | TooFewElements():
            yield "collective:", evidence.events
        case _:
            yield "", details(evidence)


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
    values = {
        name: _plain(value)
        for name in ("rank", "step", *own, *more)
        if (value := getattr(evidence, name)) is not None or name in _MAY_BE_NULL
        if not isinstance(value, Mapping)
    }
    code = {event.words: with_code(event.origins) for event in evidence.events}
    known = {words: [*map(str, lines)] for words, lines in code.items() if lines}
    found = {"cause": cause, **values, **_reshaped(evidence)}
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
