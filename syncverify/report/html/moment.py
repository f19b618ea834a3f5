"""The timeline of a violation as plain values, with the events that the violation names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syncverify.judge.ordering.races import EarlyFree, Race, Unordered
from syncverify.judge.violation import Violation
from syncverify.report.replayed import Replayed
from syncverify.timeline.timeline import Arrow, Event, Place, timeline_of
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Run

Key = tuple[int, int]  # rank, and position in its trace


def timeline_values(replayed: Replayed) -> dict[str, Any]:
    """Return lanes, events, arrows and the race of a replayed violation."""
    run = replayed.judgement.run
    timeline = timeline_of([rank_run.trace for rank_run in run.ranks])
    places = {key: number for number, key in enumerate(timeline.events)}
    told = {places[key] for key in _told(replayed.violation, run) if key in places}
    return {
        "ticks": timeline.num_ticks,
        "lanes": [
            {"rank": rank, "lane": lane}
            for rank, lanes in timeline.lanes.items()
            for lane in lanes
        ],
        "events": [
            {**_event(event), "told": number in told}
            for number, event in enumerate(timeline.events.values())
        ],
        "arrows": [_arrow(arrow) for arrow in timeline.arrows],
        "race": _race(replayed.violation, run, places),
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        **_place(event.place),
        "end": event.end,
        "kind": event.kind,
        "name": event.name,
        "moment": event.moment,
        "source": event.source,
        "parameters": list(event.parameters),
        "bytes": event.num_bytes,
        "open": event.is_open,
    }


def _place(place: Place) -> dict[str, Any]:
    return {"rank": place.rank, "lane": place.lane, "start": place.tick}


def _arrow(arrow: Arrow) -> dict[str, Any]:
    tail, head = _place(arrow.tail), _place(arrow.head)
    return {"kind": arrow.kind, "tail": tail, "head": head}


def _race(
    violation: Violation, run: Run, places: dict[Key, int]
) -> dict[str, Any] | None:
    """Return the events that nothing orders, and the wait that would order them."""
    keys = [*_unordered_keys(violation.unordered, run)]
    if len(keys) != 2:
        return None
    first, second = (places[key] for key in keys)
    remedy = violation.evidence.get("remedy", "")
    return {"first": first, "second": second, "remedy": remedy}


def _unordered_keys(unordered: Unordered | None, run: Run) -> Iterator[Key]:
    """Yield the places of the two records; a judged trace may lack later ones."""
    match unordered:
        case Race():
            records: tuple[object, ...] = (unordered.first, unordered.second)
        case EarlyFree():
            records = (unordered.use, unordered.freed)
        case None:
            return
    trace = run.ranks[unordered.rank].trace
    for record in records:
        for index, each in enumerate(trace):
            if each is record:
                yield unordered.rank, index


def _told(violation: Violation, run: Run) -> Iterator[Key]:
    """Yield the events of a race, and the collectives that a violation names in words."""
    yield from _unordered_keys(violation.unordered, run)
    words = "\n".join((violation.summary, *_texts(violation.evidence.values())))
    for rank in violation.ranks:
        for index, record in enumerate(run.ranks[rank].trace):
            if isinstance(record, CollectiveLaunch) and str(record) in words:
                yield rank, index


def _texts(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _texts(value)
