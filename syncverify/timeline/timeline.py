"""The timeline of a run: events in lanes, and the arrows between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from syncverify.judge.ordering.races import EarlyFree, Race, Unordered
from syncverify.timeline.ticks import Ticks, ticks_of
from syncverify.trace.records import (
    Access,
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StorageFreed,
    StreamCreated,
    StreamWait,
    SubjectCall,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Run, Traces
from syncverify.trace.source_lines import NoLine, Origin

CALLS = "calls"  # lane of the program that queues all work

EventKind = Literal[
    "call",
    "accumulate",
    "operator",
    "optimizer",
    "collective",
    "wait",
    "mark",
    "stream_wait",
    "host_wait",
    "stream_created",
    "freed",
]
_ACCESS_KINDS: Final[Mapping[Origin, EventKind]] = {
    NoLine.AUTOGRAD: "accumulate",
    NoLine.OPTIMIZER: "optimizer",
}
ArrowKind = Literal["launch", "match", "mismatch", "wait", "order"]
RecordKey = tuple[int, int]  # rank, and position in its trace


@dataclass(frozen=True, slots=True)
class LanePoint:
    """A point of the timeline: a tick in a lane of a rank."""

    rank: int
    lane: str
    tick: int


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One action of a rank.

    Attributes:
        place: Where the event begins.
        end: Tick at which the event has ended. A collective may use its memory until the rank
            waits for it.
        kind: Kind of the action.
        name: The action in a word or two.
        moment: Point of the training run, in words.
        source: Origin of the work; None where a record has none.
        parameters: Names of parameters with gradients in the memory.
        num_bytes: Bytes that are written, or else read; of a collective, bytes that the rank
            contributes; of memory that is freed, its size.
        is_open: Whether a collective never ends, because some rank never launches it.
    """

    place: LanePoint
    end: int
    kind: EventKind
    name: str
    moment: str
    source: Origin | None = None
    parameters: tuple[str, ...] = ()
    num_bytes: int = 0
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """A relation of two places.

    Attributes:
        kind: A launch, two ranks that meet in a collective (`match`, or `mismatch` where they
            disagree), a wait for a collective, or an order between streams or of the host.
        tail: Place that comes first: of an event, or of a launch on its own stream.
        head: Place of the event that follows.
    """

    kind: ArrowKind
    tail: LanePoint
    head: LanePoint


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events and arrows of a run.

    Attributes:
        lanes: Lanes of each rank, `calls` first, then streams in the order of their use.
        events: One entry for each record except `SubjectReturn`, by rank and position.
        arrows: Relations between places.
        num_ticks: Length in ticks.
    """

    lanes: Mapping[int, tuple[str, ...]]
    events: Mapping[RecordKey, TimelineEvent]
    arrows: tuple[Arrow, ...]
    num_ticks: int


def timeline_of(traces: Traces) -> Timeline:
    """Lay out the traces of all ranks; see Note [Ticks]."""
    return _Builder(traces, ticks_of(traces)).built()


def places_of(
    unordered: Unordered | None, run: Run
) -> tuple[RecordKey, RecordKey] | None:
    """Return the places of two records that nothing orders; None if the run lacks one."""
    match unordered:
        case Race():
            pair: tuple[object, object] = (unordered.first, unordered.second)
        case EarlyFree():
            pair = (unordered.use, unordered.freed)
        case None:
            return None
    # By identity: the judge may have left records out, which moves the others.
    trace = run.ranks[unordered.rank].trace
    places = {id(record): index for index, record in enumerate(trace)}
    first, second = (places.get(id(record)) for record in pair)
    if first is None or second is None:  # the run does not show the violation any more
        return None
    return (unordered.rank, first), (unordered.rank, second)


@dataclass(slots=True)
class _Builder:
    traces: Traces
    ticks: Ticks
    events: dict[tuple[int, int], TimelineEvent] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)
    # Events of collectives by key and rank, and marks by rank and number.
    launches: dict[CollectiveKey, dict[int, tuple[TimelineEvent, CollectiveLaunch]]] = (
        field(default_factory=dict)
    )
    marks: dict[tuple[int, int], LanePoint] = field(default_factory=dict)
    owners: list[list[tuple[MemoryRegion, str]]] = field(default_factory=list)
    # Tick of the first wait for each collective, by rank.
    waits: list[dict[CollectiveKey, int]] = field(default_factory=list)

    def built(self) -> Timeline:
        """Return the timeline of the traces."""
        for rank, trace in enumerate(self.traces):
            self.owners.append(_named_memory(trace))
            self.waits.append(_first_waits(trace, self.ticks.of_records[rank]))
            ends = _ends_of_calls(trace)
            for index, record in enumerate(trace):
                self._add(rank, index, record, ends.get(index))
        self._connect()
        lanes = {rank: _lanes(trace) for rank, trace in enumerate(self.traces) if trace}
        return Timeline(lanes, self.events, tuple(self.arrows), self.ticks.last)

    def _add(
        self, rank: int, index: int, record: TraceRecord, end_index: int | None
    ) -> None:
        """Add the event of a record; the return of a call is the end of the call's event."""
        at = LanePoint(rank, _lane(record), self.ticks.of_records[rank][index])
        if isinstance(record, SubjectReturn):
            return
        if isinstance(record, CollectiveLaunch):
            event = self._launch(at, record)
            self.launches.setdefault(record.key, {})[rank] = event, record
        elif isinstance(record, Access):
            event = self._access(at, record)
        elif isinstance(record, SubjectCall):
            event = self._call(at, record, end_index)
        else:
            event = _point(at, record)
            self._note_mark(at, record)
        self.events[rank, index] = event

    def _note_mark(self, at: LanePoint, record: TraceRecord) -> None:
        """Remember a mark, and draw an arrow from a mark to a wait for it."""
        if isinstance(record, Mark):
            self.marks[at.rank, record.mark] = at
        elif isinstance(record, StreamWait | HostWait):
            tail = self.marks.get((at.rank, record.mark))
            if tail is not None:  # a wait for an unrecorded event has no effect
                self.arrows.append(Arrow("order", tail, at))

    def _call(
        self, at: LanePoint, record: SubjectCall, end_index: int | None
    ) -> TimelineEvent:
        end = self.ticks.last
        if end_index is not None:
            end = self.ticks.of_records[at.rank][end_index]
        phase = record.moment.phase
        return TimelineEvent(
            at, max(end, at.tick + 1), "call", phase, str(record.moment)
        )

    def _launch(self, at: LanePoint, record: CollectiveLaunch) -> TimelineEvent:
        if record.stream != record.communication_stream:
            tail = LanePoint(at.rank, record.stream, at.tick)
            self.arrows.append(Arrow("launch", tail, at))
        return TimelineEvent(
            at,
            self._end(at, record),
            "collective",
            " ".join(filter(None, (record.operation, record.reduce_op))),
            str(record.moment),
            record.source,
            record.parameters,
            _num_bytes(record.regions),
            is_open=record.key not in self.ticks.ends,
        )

    def _end(self, at: LanePoint, record: CollectiveLaunch) -> int:
        """Return the tick until which a collective may use its memory on a rank."""
        if record.key not in self.ticks.ends:
            return self.ticks.last
        return self.waits[at.rank].get(record.key, self.ticks.ends[record.key])

    def _access(self, at: LanePoint, record: Access) -> TimelineEvent:
        touched = record.writes or record.reads
        names = dict.fromkeys(
            name
            for region, name in self.owners[at.rank]
            if any(region.overlaps(each) for each in (*record.reads, *record.writes))
        )
        return TimelineEvent(
            at,
            at.tick + 1,
            _ACCESS_KINDS.get(record.source, "operator"),
            record.operator,
            str(record.moment),
            record.source,
            tuple(names),
            _num_bytes(touched),
        )

    def _connect(self) -> None:
        """Add the arrows of collectives: between ranks, and to the waits."""
        for launched in self.launches.values():
            for (one, record), (event, other) in itertools.pairwise(launched.values()):
                agree = other.matched_arguments == record.matched_arguments
                kind: ArrowKind = "match" if agree else "mismatch"
                self.arrows.append(Arrow(kind, one.place, event.place))
        for rank, trace in enumerate(self.traces):
            for index, wait in enumerate(trace):
                if isinstance(wait, CollectiveWait):
                    self._connect_wait((rank, index), wait)

    def _connect_wait(self, key: RecordKey, record: CollectiveWait) -> None:
        launched = self.launches.get(record.key, {}).get(key[0])
        if launched is not None:
            head = self.events[key].place
            self.arrows.append(Arrow("wait", launched[0].place, head))


def _point(
    at: LanePoint,
    record: CollectiveWait
    | Mark
    | StreamWait
    | HostWait
    | StreamCreated
    | StorageFreed,
) -> TimelineEvent:
    """Return the event of a record that takes one tick."""
    kind, name = _words(record)
    source = (
        None if isinstance(record, CollectiveWait | StorageFreed) else record.source
    )
    num_bytes = record.num_bytes if isinstance(record, StorageFreed) else 0
    moment = str(record.moment)
    return TimelineEvent(
        at, at.tick + 1, kind, name, moment, source, num_bytes=num_bytes
    )


def _words(
    record: CollectiveWait
    | Mark
    | StreamWait
    | HostWait
    | StreamCreated
    | StorageFreed,
) -> tuple[EventKind, str]:
    match record:
        case CollectiveWait():
            return "wait", "wait for a collective"
        case Mark():
            return "mark", "record event"
        case StreamWait():
            return "stream_wait", f"{record.stream} waits for an event"
        case HostWait():
            return "host_wait", "the host waits"
        case StreamCreated():
            return "stream_created", f"{record.stream} is made"
        case StorageFreed():
            return "freed", f"storage {record.storage} is given back"


def _named_memory(trace: Sequence[TraceRecord]) -> list[tuple[MemoryRegion, str]]:
    """List the memory of gradients by parameter, as the calls of the subject leave it."""
    found = {
        (region, name)
        for record in trace
        if isinstance(record, SubjectReturn)
        for name, region in record.gradients.items()
    }
    return sorted(found, key=lambda pair: pair[1])


def _first_waits(
    trace: Sequence[TraceRecord], ticks: Sequence[int]
) -> dict[CollectiveKey, int]:
    found: dict[CollectiveKey, int] = {}
    for record, tick in zip(trace, ticks, strict=True):
        if isinstance(record, CollectiveWait):
            found.setdefault(record.key, tick)
    return found


def _ends_of_calls(trace: Sequence[TraceRecord]) -> dict[int, int]:
    """Return the position of the return of each call, by the position of the call."""
    opened, ends = list[int](), dict[int, int]()
    for index, record in enumerate(trace):
        if isinstance(record, SubjectCall):
            opened.append(index)
        elif isinstance(record, SubjectReturn) and opened:
            ends[opened.pop()] = index
    return ends


def _lane(record: TraceRecord) -> str:
    match record:
        case Access() | CollectiveLaunch():
            return record.runs_on
        case SubjectCall() | SubjectReturn() | HostWait() | StreamCreated():
            return CALLS
        case _:
            return record.stream


def _lanes(trace: Sequence[TraceRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((CALLS, *_used_lanes(trace))))


def _used_lanes(trace: Sequence[TraceRecord]) -> Iterator[str]:
    for record in trace:
        if isinstance(record, CollectiveLaunch):
            yield record.stream
        yield _lane(record)


def _num_bytes(regions: Sequence[MemoryRegion]) -> int:
    return sum(region.end_byte - region.start_byte for region in regions)
