"""The layout of a run's traces as a timeline; see `Note [Ticks]`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from syncverify.trace.records import (
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StreamWait,
)
from syncverify.trace.run import Traces
from syncverify.trace.timeline.events import events_of, lanes_of
from syncverify.trace.timeline.ticks import ticks_of
from syncverify.trace.timeline.timeline import (
    Arrow,
    LanePoint,
    RecordKey,
    Timeline,
    TimelineEvent,
)

_Events = Mapping[RecordKey, TimelineEvent]
# Launches of each collective with their places, by rank.
_Launches = dict[CollectiveKey, dict[int, tuple[LanePoint, CollectiveLaunch]]]


def timeline_of(traces: Traces) -> Timeline:
    """Lay out the traces of all ranks."""
    ticks = ticks_of(traces)
    events = {
        (rank, index): event
        for rank, trace in enumerate(traces)
        for index, event in events_of(rank, trace, ticks)
    }
    launches = _launches(traces, events)
    arrows = (
        *_launching_and_ordering(traces, events),
        *_matching(launches),
        *_waiting(traces, events, launches),
    )
    lanes = {rank: lanes_of(trace) for rank, trace in enumerate(traces) if trace}
    return Timeline(lanes, events, arrows, ticks.last)


def _launches(traces: Traces, events: _Events) -> _Launches:
    found: _Launches = {}
    for rank, trace in enumerate(traces):
        for index, record in enumerate(trace):
            if isinstance(record, CollectiveLaunch):
                place = events[rank, index].place
                found.setdefault(record.key, {})[rank] = place, record
    return found


def _launching_and_ordering(traces: Traces, events: _Events) -> Iterator[Arrow]:
    """Yield arrows from a stream to the collective that it launches, and from marks to waits.

    A wait for an event that was never recorded has no effect, and no arrow.
    """
    for rank, trace in enumerate(traces):
        marks = dict[int, LanePoint]()
        for index, record in enumerate(trace):
            if isinstance(record, Mark):
                marks[record.mark] = events[rank, index].place
            elif isinstance(record, StreamWait | HostWait) and record.mark in marks:
                yield Arrow("order", marks[record.mark], events[rank, index].place)
            elif isinstance(record, CollectiveLaunch):
                head = events[rank, index].place
                if record.stream != record.communication_stream:
                    tail = LanePoint(rank, record.stream, head.tick)
                    yield Arrow("launch", tail, head)


def _matching(launches: _Launches) -> Iterator[Arrow]:
    """Yield arrows from rank to rank of each collective."""
    for launched in launches.values():
        for (tail, one), (head, other) in itertools.pairwise(launched.values()):
            agree = other.matched_arguments == one.matched_arguments
            yield Arrow("match" if agree else "mismatch", tail, head)


def _waiting(traces: Traces, events: _Events, launches: _Launches) -> Iterator[Arrow]:
    """Yield arrows from a collective to the waits of its rank."""
    for rank, trace in enumerate(traces):
        for index, wait in enumerate(trace):
            if isinstance(wait, CollectiveWait) and rank in launches.get(wait.key, {}):
                tail, _ = launches[wait.key][rank]
                yield Arrow("wait", tail, events[rank, index].place)
