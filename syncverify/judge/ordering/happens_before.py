"""Walk the traces of all ranks with the vector clock of each record.

A lane is a queue of one rank, such as a stream; its entries run one after the other. A clock maps each
lane to the number of its entries that come before a point. A lane that it does not name counts as 0.

Note [What orders queued work]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Semantics `stream`, as on a GPU. Three things order queued work:

    1. Work runs after all earlier work of its stream.
    2. Work runs after all marks for which its stream waits.
    3. Work runs after all marks that the host had waited for when it queued the work.

Operators on memory of the host run at once, on the stream `host`: after the marks that the
host has waited for, and before all that it queues later. Beside these rules, only collectives
order work: the order in which the host queues says nothing about two streams. Each order that
the machine adds has a row in docs/ordering.md, with the line of torch that promises it.

A collective on a separate communication stream first waits for the stream that issued it.
It ends on a rank once all ranks whose data this rank receives have started it:

    | collective | a rank that ends it comes after the start of |
    |---|---|
    | `broadcast`, `scatter`, a message | the root or the sender, on the ranks that receive |
    | `reduce`, `gather` | all ranks, on the root |
    | any other | all ranks |

A rank that only sends may end first: NCCL and gloo promise no more. In between a collective may
touch its memory at any time, so the accesses of two ranks order nothing. Work that a rank
queues after the end runs after all work that these ranks queued before the start.

Semantics `host`, as gloo on CPU. The host runs all operators itself, in program order, on
whichever stream is current. A collective runs beside the host from launch to wait. The
host waits at once for a synchronous collective: its communication stream is the stream
that issued it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from syncverify.trace.records import (
    HOST,
    Access,
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    MemoryUse,
    StorageFreed,
    StreamWait,
)
from syncverify.trace.rounds import Meeting, num_launches, walk_together
from syncverify.trace.run import Trace, Traces

Clock = dict[int, int]
Semantics = Literal["stream", "host"]
_FROM_ROOT: Final = frozenset({"broadcast", "scatter"})
_TO_ROOT: Final = frozenset({"reduce", "gather"})


def join(clock: Clock, other: Clock) -> None:
    """Order the point of `clock` after that of `other`: take the larger count of each lane."""
    for lane, count in other.items():
        if clock.get(lane, 0) < count:
            clock[lane] = count


@dataclass(slots=True, eq=False)
class CollectiveClock(Meeting):
    """Clock of one collective: it ends on a rank after those that send to this rank started it."""

    # Join of the clocks with which the ranks started it: of all ranks, or of the one that sends.
    starts: Clock = field(default_factory=dict)

    def arrive(self, start: Clock, *, sends: bool = True) -> None:
        """Start the collective on one more rank, with its clock; others may depend on a sender."""
        if sends:
            join(self.starts, start)
        self.num_absent -= 1


@dataclass(slots=True, eq=False)
class Lane:
    """A queue of one rank."""

    index: int  # among the lanes of all ranks
    rank: int
    name: str  # of the stream
    clock: Clock  # of the next entry
    # Collectives that the next entry waits for and that are not joined into the clock yet.
    collectives: list[CollectiveClock] = field(default_factory=list)
    num_host_waits: int = 0  # waits and operators of the host that the clock contains

    def push(self) -> int:
        """Add an entry, and return its number in the lane, from 1."""
        count = self.clock[self.index] + 1
        self.clock[self.index] = count
        return count


class Observer:
    """Receives the records of all ranks, in an order that respects happens-before."""

    __slots__ = ()

    def queued(self, index: int, lane: Lane, use: MemoryUse) -> None:
        """Look at the newest entry of a lane; `index` is its position in the trace."""

    def freed(
        self, index: int, lane: Lane, record: StorageFreed, recorded: Sequence[Clock]
    ) -> None:
        """Look at freed memory; the next entry of `lane` may overwrite it.

        `recorded` has the clocks of the streams for which the allocator waits before.
        """

    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None:
        """Look at the clock of a host after it has waited."""


def walk(traces: Traces, semantics: Semantics, observer: Observer) -> None:
    """Show each use of memory, free and host wait of the traces of all ranks to an observer."""
    numbers = num_launches(traces).items()
    collectives = {key: CollectiveClock(number) for key, number in numbers}
    lanes: list[Lane] = []
    walk_together(
        _RankWalk(rank, semantics, collectives, lanes, observer).steps(trace)
        for rank, trace in enumerate(traces)
    )


@dataclass(slots=True)
class _InFlight:
    """A collective that was launched; on gloo, one that the host has not waited for."""

    collective: CollectiveClock | None  # None on a rank that receives nothing
    lane: Lane
    count: int  # of the lane at the launch


@dataclass(slots=True)
class _RankWalk:
    """The walk through the trace of one rank."""

    rank: int
    semantics: Semantics
    collectives: dict[CollectiveKey, CollectiveClock]  # shared by all ranks
    lanes: list[Lane]  # by number; shared by all ranks
    observer: Observer
    own_lanes: dict[str, Lane] = field(default_factory=dict)  # by stream
    # Clock of each mark that was recorded, by number.
    marks: dict[int, Clock] = field(default_factory=dict)
    # Collectives that were launched; on gloo, those that the host has not waited for.
    launched: dict[CollectiveKey, _InFlight] = field(default_factory=dict)
    host: Clock = field(default_factory=dict)
    num_host_waits: int = 0  # waits of the host, and its own operators
    # On gloo: lanes of collectives that the host has waited for. They are used again, so that the
    # number of lanes grows with the collectives in flight, not with all collectives.
    idle: list[Lane] = field(default_factory=list)

    def steps(self, trace: Trace) -> Iterator[Meeting]:
        """Walk the trace; yield a collective whenever the rank must wait for its peers."""
        for index, record in enumerate(trace):
            if type(record) is Access:
                lane = self._lane(record.stream)
                if lane.collectives or lane.num_host_waits != self.num_host_waits:
                    yield from self._settle(lane)
                lane.push()
                self.observer.queued(index, lane, record)
                if record.stream == HOST:
                    self._join_host({lane.index: lane.clock[lane.index]})
            elif type(record) is CollectiveLaunch:
                yield from self._launch(index, record)
            elif type(record) is CollectiveWait:
                yield from self._wait(record)
            elif type(record) is StreamWait:
                join(self._lane(record.stream).clock, self._passed(record))
            elif type(record) is Mark:
                lane = self._lane(record.stream)
                yield from self._settle(lane)
                self.marks[record.mark] = lane.clock.copy()
            elif type(record) is HostWait:
                self._join_host(self._passed(record))
                self.observer.waited_on_host(index, self.rank, self.host)
            elif type(record) is StorageFreed:
                lane = self._lane(record.stream)
                yield from self._settle(lane)
                streams = (*record.recorded_streams, *record.engine_streams)
                known = [self.own_lanes[s] for s in streams if s in self.own_lanes]
                for each in known:
                    yield from self._settle(each)
                clocks = [each.clock for each in known]
                self.observer.freed(index, lane, record, clocks)

    def _join_host(self, passed: Clock) -> None:
        join(self.host, passed)
        self.num_host_waits += 1

    def _lane(self, stream: str) -> Lane:
        name = stream if self.semantics == "stream" else HOST
        lane = self.own_lanes.get(name)
        if lane is None:
            lane = self.own_lanes[name] = self._new_lane(name)
        return lane

    def _new_lane(self, name: str) -> Lane:
        index = len(self.lanes)
        self.lanes.append(Lane(index, self.rank, name, {index: 0}))
        return self.lanes[index]

    def _settle(self, lane: Lane) -> Iterator[Meeting]:
        """Join all that the next entry waits for; yield collectives that are not complete."""
        for collective in lane.collectives:
            yield from _joined(lane, collective)
        lane.collectives.clear()
        if lane.num_host_waits != self.num_host_waits:
            join(lane.clock, self.host)
            lane.num_host_waits = self.num_host_waits

    def _launch(self, index: int, record: CollectiveLaunch) -> Iterator[Meeting]:
        issuing = self._lane(record.stream)
        yield from self._settle(issuing)
        lane = self._communication_lane(record)
        if lane is not issuing:
            yield from self._settle(lane)
            join(lane.clock, issuing.clock)
        collective = self.collectives[record.key]
        collective.arrive(lane.clock, sends=_sends(record, self.rank))
        is_received = _receives(record, self.rank)
        received = collective if is_received else None
        self.launched[record.key] = _InFlight(received, lane, lane.push())
        if is_received:
            lane.collectives.append(collective)
        self.observer.queued(index, lane, record)

    def _communication_lane(self, record: CollectiveLaunch) -> Lane:
        if self.semantics == "stream" or record.communication_stream == record.stream:
            return self._lane(record.communication_stream)
        if self.idle:
            return self.idle.pop()
        return self._new_lane(record.communication_stream)

    def _wait(self, record: CollectiveWait) -> Iterator[Meeting]:
        in_flight = self.launched.get(record.key)
        if in_flight is None:
            return
        lane = self._lane(record.stream)
        yield from self._settle(lane)
        if in_flight.collective is not None:
            yield from _joined(lane, in_flight.collective)
        join(lane.clock, {in_flight.lane.index: in_flight.count})
        if record.stream == HOST:
            self._join_host(lane.clock)
        if self.semantics == "host" and in_flight.lane is not lane:
            del self.launched[record.key]
            self.idle.append(in_flight.lane)

    def _passed(self, wait: StreamWait | HostWait) -> Clock:
        # A wait for an event that was never recorded does nothing in CUDA.
        return self.marks.get(wait.mark, {})


def _joined(lane: Lane, collective: CollectiveClock) -> Iterator[Meeting]:
    yield from collective.awaited()
    join(lane.clock, collective.starts)


def _sends(launched: CollectiveLaunch, rank: int) -> bool:
    """Tell whether results of other ranks depend on a rank, by its launch."""
    if launched.operation in _FROM_ROOT:
        return launched.root in (None, rank)
    return launched.operation != "recv"


def _receives(launched: CollectiveLaunch, rank: int) -> bool:
    """Tell whether the result of a rank depends on other ranks, by its launch."""
    if launched.operation in _FROM_ROOT:
        return launched.root != rank
    if launched.operation in _TO_ROOT:
        return launched.root in (None, rank)
    return launched.operation != "send"
