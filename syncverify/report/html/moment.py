"""The timeline of a violation as plain values, with the events that the violation names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syncverify.judge.violation import Violation
from syncverify.report.replayed import Key, Replayed, race_of
from syncverify.timeline.timeline import Arrow, Event, Place, timeline_of
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Run


def timeline_values(replayed: Replayed) -> dict[str, Any]:
    """Return lanes, events, arrows and the race of a replayed violation."""
    run = replayed.judgement.run
    timeline = timeline_of([rank_run.trace for rank_run in run.ranks])
    places = {key: number for number, key in enumerate(timeline.events)}
    race = race_of(replayed)
    told = {places[key] for key in (*(race or ()), *_told(replayed.violation, run))}
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
        "race": race
        and {
            "first": places[race[0]],
            "second": places[race[1]],
            "remedy": replayed.violation.evidence.get("remedy", ""),
        },
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


def _told(violation: Violation, run: Run) -> Iterator[Key]:
    """Yield the collectives that a violation names in words."""
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
