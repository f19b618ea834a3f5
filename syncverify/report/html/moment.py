"""The timeline of a violation as plain values, with the events that the violation names."""

from collections.abc import Iterator
from typing import Any, Final

from syncverify.judge.ordering.races import places_of
from syncverify.judge.violation import Violation
from syncverify.report.evidence import remedy_of
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Run
from syncverify.trace.timeline.timeline import (
    EventKind,
    LanePoint,
    RecordKey,
    TimelineEvent,
    timeline_of,
)

# Names of events in a word, for boxes that are one tick wide.
_SHORT: Final[dict[EventKind, str]] = {
    "freed": "free",
    "host_wait": "host waits",
    "mark": "mark",
    "stream_created": "new stream",
    "stream_wait": "wait",
    "wait": "wait",
}
_MOST_PARAMETERS: Final = 3


def timeline_values(run: Run, violation: Violation | None) -> dict[str, Any]:
    """Return lanes, events, arrows and the race of a violation that a run shows."""
    timeline = timeline_of([rank_run.trace for rank_run in run.ranks])
    places = {key: number for number, key in enumerate(timeline.events)}
    race = places_of(violation.evidence.unordered, run) if violation else None
    launches = launches_of_events(violation, run) if violation else ()
    shown = {places[key] for key in (*(race or ()), *launches)}
    return {
        "ticks": timeline.num_ticks,
        "lanes": [
            {"rank": rank, "lane": lane}
            for rank, lanes in timeline.lanes.items()
            for lane in lanes
        ],
        "events": [
            {**_event(event), "told": number in shown}
            for number, event in enumerate(timeline.events.values())
        ],
        "arrows": [
            {"kind": each.kind, "tail": _place(each.tail), "head": _place(each.head)}
            for each in timeline.arrows
        ],
        "race": race
        and {
            "first": places[race[0]],
            "second": places[race[1]],
            "remedy": remedy_of(violation) if violation else "",
        },
    }


def _event(event: TimelineEvent) -> dict[str, Any]:
    return {
        **_place(event.place),
        "end": event.end,
        "kind": event.kind,
        "name": event.name,
        "labels": list(dict.fromkeys(_labels(event))),
        "moment": event.moment,
        "source": str(event.source or ""),
        "parameters": list(event.parameters),
        "bytes": event.num_bytes,
        "open": event.is_open,
    }


def _labels(event: TimelineEvent) -> Iterator[str]:
    """Yield texts for the box of an event, the longest first: a box has one that fits."""
    name = short_name(event.name)
    if event.kind in _SHORT:
        yield from (name, _SHORT[event.kind])
    elif event.kind == "call":
        yield name
    else:
        few = event.parameters[:_MOST_PARAMETERS]
        rest = len(event.parameters) - len(few)
        more = f"and {rest} more" if rest else ""
        yield f"{name} {', '.join(few)} {more}".strip()
        yield from (name, name.partition(" ")[0])


def _place(place: LanePoint) -> dict[str, Any]:
    return {"rank": place.rank, "lane": place.lane, "start": place.tick}


def launches_of_events(violation: Violation, run: Run) -> Iterator[RecordKey]:
    """Yield the collectives of a violation's events."""
    uses = [event.use for event in violation.evidence.events]
    collectives = {use.key for use in uses if isinstance(use, CollectiveLaunch)}
    for rank in violation.ranks:
        for index, record in enumerate(run.ranks[rank].trace):
            if isinstance(record, CollectiveLaunch) and record.key in collectives:
                yield rank, index


def short_name(operator: str) -> str:
    """Return the name of an operator without its library and its usual overloads."""
    name = operator.removeprefix("aten.")
    for overload in (".default", ".Tensor", ".Scalar"):
        name = name.removesuffix(overload)
    return name
