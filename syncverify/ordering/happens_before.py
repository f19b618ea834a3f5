"""Walk the traces of all ranks and know, at each event, what comes before it.

Note [What orders queued work]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Work queued on a stream runs after everything queued there before; after everything that
the stream was told to wait for; and after everything that the host had waited for when
it queued the work. Nothing else orders it: that the host queued one thing before another
says nothing about two streams.

A collective on a communication stream of its own first waits for the stream that it was
issued on. It ends on a rank once all its ranks have started it. What it reads and writes
it may touch at any time in between, so the accesses of two ranks order nothing; but what
a rank queues after the end comes after all that any rank queued before the start.

The other semantics is gloo's on CPU. The host runs all operators itself, in program
order, whatever stream is current; a collective runs beside it from launch to wait, and a
synchronous one (its communication stream is the stream that it was issued on) is waited
for at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from syncverify.memory import MemoryRegion
from syncverify.ordering.clocks import Clock, Lane, Meeting, join
from syncverify.trace import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    Event,
    HostWait,
    Mark,
    Place,
    StorageFreed,
    StreamWait,
)

Semantics = Literal["stream", "host"]
Traces = Sequence[Sequence[Event]]
_HOST = "host"


class Observer(Protocol):
    """Who wants to know, in an order that respects what comes before what."""

    def queued(
        self,
        index: int,
        lane: Lane,
        reads: tuple[MemoryRegion, ...],
        writes: tuple[MemoryRegion, ...],
    ) -> None:
        """Look at an entry that was just added to a lane; `index` is its event's."""

    def freed(self, index: int, lane: Lane, event: StorageFreed) -> None:
        """Look at memory that whatever `lane` is given next may overwrite."""

    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None:
        """Look at what comes before all that a host does from here on."""


def walk(traces: Traces, semantics: Semantics, observer: Observer) -> None:
    """Show every access and every free to an observer.

    Args:
        traces: Events of each rank, in host order.
        semantics: What orders queued work.
        observer: Looks at the clocks.
    """
    meetings: dict[Place, Meeting] = {}
    for events in traces:
        for event in events:
            if type(event) is CollectiveLaunch:
                key = event.place
                meetings.setdefault(key, Meeting()).num_absent += 1
    lanes: list[Lane] = []
    waiting = {
        rank: _RankWalk(rank, semantics, meetings, lanes, observer).steps(events)
        for rank, events in enumerate(traces)
    }
    while waiting:
        _go_round(waiting)


def _go_round(waiting: dict[int, Iterator[Meeting]]) -> None:
    """Let each rank go on until it waits for a collective or its trace ends."""
    awaited: list[Meeting] = []
    for rank, steps in list(waiting.items()):
        meeting = next(steps, None)
        if meeting is None:
            del waiting[rank]
        else:
            awaited.append(meeting)
    if awaited and all(meeting.num_absent > 0 for meeting in awaited):
        # On a machine this would be a deadlock, which others judge. Judge what is there.
        awaited[0].num_absent = 0


@dataclass(slots=True)
class _InFlight:
    meeting: Meeting
    lane: Lane
    count: int


@dataclass(slots=True)
class _RankWalk:
    rank: int
    semantics: Semantics
    meetings: dict[Place, Meeting]
    lanes: list[Lane]
    observer: Observer
    # By stream.
    own_lanes: dict[str, Lane] = field(default_factory=dict)
    marks: dict[int, Clock] = field(default_factory=dict)
    launched: dict[Place, _InFlight] = field(default_factory=dict)
    host: Clock = field(default_factory=dict)
    num_host_waits: int = 0
    # Lanes beside the host whose last collective it has waited for.
    idle: list[Lane] = field(default_factory=list)

    def steps(self, events: Sequence[Event]) -> Iterator[Meeting]:
        """Go through the trace, and yield what cannot be passed yet."""
        for index, event in enumerate(events):
            kind = type(event)
            if kind is Access:
                assert isinstance(event, Access)
                lane = self._lane(event.stream)
                if lane.meetings or lane.num_host_waits != self.num_host_waits:
                    yield from self._settle(lane)
                lane.push()
                self.observer.queued(index, lane, event.reads, event.writes)
            elif kind is CollectiveLaunch:
                assert isinstance(event, CollectiveLaunch)
                yield from self._launch(index, event)
            elif kind is CollectiveWait:
                assert isinstance(event, CollectiveWait)
                yield from self._wait(event)
            elif isinstance(event, Mark | StreamWait | HostWait):
                yield from self._synchronize(event)
                if kind is HostWait:
                    self.observer.waited_on_host(index, self.rank, self.host)
            elif isinstance(event, StorageFreed):
                lane = self._lane(event.stream)
                yield from self._settle(lane)
                self.observer.freed(index, lane, event)

    def _lane(self, stream: str) -> Lane:
        name = stream if self.semantics == "stream" else _HOST
        lane = self.own_lanes.get(name)
        if lane is None:
            lane = self.own_lanes[name] = self._new_lane(name)
        return lane

    def _new_lane(self, name: str) -> Lane:
        index = len(self.lanes)
        self.lanes.append(Lane(index, self.rank, name, {index: 0}))
        return self.lanes[index]

    def _settle(self, lane: Lane) -> Iterator[Meeting]:
        """Bring a clock up to date; yield what keeps it from that."""
        for meeting in lane.meetings:
            while meeting.num_absent > 0:
                yield meeting
            join(lane.clock, meeting.starts)
        lane.meetings.clear()
        if lane.num_host_waits != self.num_host_waits:
            join(lane.clock, self.host)
            lane.num_host_waits = self.num_host_waits

    def _launch(self, index: int, event: CollectiveLaunch) -> Iterator[Meeting]:
        issuing = self._lane(event.stream)
        yield from self._settle(issuing)
        lane = self._communication_lane(event)
        if lane is not issuing:
            yield from self._settle(lane)
            join(lane.clock, issuing.clock)
        key = event.place
        meeting = self.meetings[key]
        meeting.arrive(lane.clock)
        self.launched[key] = _InFlight(meeting, lane, lane.push())
        lane.meetings.append(meeting)
        self.observer.queued(index, lane, event.regions, event.written)

    def _communication_lane(self, event: CollectiveLaunch) -> Lane:
        if self.semantics == "stream" or event.communication_stream == event.stream:
            return self._lane(event.communication_stream)
        if self.idle:
            return self.idle.pop()
        return self._new_lane(event.communication_stream)

    def _wait(self, event: CollectiveWait) -> Iterator[Meeting]:
        key = event.place
        in_flight = self.launched.get(key)
        if in_flight is None:
            return
        lane = self._lane(event.stream)
        yield from self._settle(lane)
        while in_flight.meeting.num_absent > 0:
            yield in_flight.meeting
        join(lane.clock, in_flight.meeting.starts)
        join(lane.clock, {in_flight.lane.index: in_flight.count})
        if self.semantics == "host" and in_flight.lane is not lane:
            del self.launched[key]
            self.idle.append(in_flight.lane)

    def _synchronize(self, event: Mark | StreamWait | HostWait) -> Iterator[Meeting]:
        # CUDA does not wait for an event that was never recorded.
        passed = self.marks.get(event.mark, {})
        if isinstance(event, HostWait):
            join(self.host, passed)
            self.num_host_waits += 1
            return
        lane = self._lane(event.stream)
        if isinstance(event, StreamWait):
            join(lane.clock, passed)
            return
        yield from self._settle(lane)
        self.marks[event.mark] = lane.clock.copy()
