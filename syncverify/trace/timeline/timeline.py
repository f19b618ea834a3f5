"""The timeline of a run as a value: events in lanes, and the arrows between them.

Note [Ticks]
    A trace has an order and no clock, so its time is counted in ticks:

    * A record is one tick after the record before it on the same rank.
    * A collective begins at its launch. It ends one tick after its last rank has launched it,
      and never if some rank does not launch it. Ranks without a trace do not count.
    * A wait for a collective comes at its end or later. A wait for one that never ends is at the
      next tick, so that the rest of the trace has a place as well.

    Queued work stands at the tick at which the host queued it. A device may run it later.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from syncverify.trace import records
from syncverify.trace.regions import MemoryRegion, overlap
from syncverify.trace.rounds import Meeting, walk_together
from syncverify.trace.run import Trace, Traces
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
# A launch, two ranks that meet in a collective (`match`, or `mismatch` where they disagree), a wait
# for a collective, or an order between streams or of the host.
ArrowKind = Literal["launch", "match", "mismatch", "wait", "order"]
RecordKey = tuple[int, int]  # rank, and position in its trace
_ACCESS_KINDS: Final[Mapping[Origin, EventKind]] = {
    NoLine.AUTOGRAD: "accumulate",
    NoLine.OPTIMIZER: "optimizer",
}


@dataclass(frozen=True, slots=True)
class LanePoint:
    """A point of the timeline."""

    rank: int
    lane: str
    tick: int


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One action of a rank."""

    place: LanePoint  # where it begins
    # Tick at which it has ended. A collective may use its memory until the rank waits for it.
    end: int
    kind: EventKind
    name: str  # the action in a few words
    moment: str  # in words
    source: Origin | None = None
    parameters: tuple[str, ...] = ()  # those with gradients in the memory
    # Bytes that are written, or else read, gaps included; of a collective, bytes that the rank
    # contributes; of memory that is freed, its size.
    num_bytes: int = 0
    # Whether a collective never ends, as some rank never launches it.
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """A relation of two places, of which the tail comes first.

    They are places of events; the tail of a launch is on the stream that issued it.
    """

    kind: ArrowKind
    tail: LanePoint
    head: LanePoint


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events and arrows of a run."""

    # Lanes of each rank, `calls` first, then streams in the order of their use.
    lanes: Mapping[int, tuple[str, ...]]
    events: Mapping[RecordKey, TimelineEvent]  # by rank and position
    arrows: tuple[Arrow, ...]
    num_ticks: int


@dataclass(frozen=True, slots=True)
class Ticks:
    """The logical time of a run; see Note [Ticks]."""

    of_records: Sequence[Sequence[int]]  # by rank and position in the trace
    # Tick at which a collective has ended; those that never end are left out.
    ends: Mapping[records.CollectiveKey, int]

    @property
    def last(self) -> int:
        """Return one past the last tick of the run."""
        return max((tick for own in self.of_records for tick in own), default=0) + 1


def ticks_of(traces: Traces) -> Ticks:
    """Give each record of all ranks its tick; ranks without a trace take no part."""
    playing = {rank for rank, trace in enumerate(traces) if trace}
    members = {
        record.key: len(playing & {*record.ranks})
        for trace in traces
        for record in trace
        if isinstance(record, records.CollectiveLaunch)
    }
    meetings = {key: _TickMeeting(number, number) for key, number in members.items()}
    ticks: list[list[int]] = [[] for _ in traces]
    walk_together(
        _placed(trace, own, meetings) for trace, own in zip(traces, ticks, strict=True)
    )
    ends = {key: each.end for key, each in meetings.items() if not each.num_missing}
    return Ticks(ticks, ends)


@dataclass(slots=True, eq=False)
class _TickMeeting(Meeting):
    """A collective, and its end."""

    num_missing: int = 0  # ranks with a trace that have yet to launch it
    end: int = 0  # tick

    def launch(self, tick: int) -> None:
        """Launch it on one more rank."""
        self.num_missing -= 1
        self.num_absent -= 1
        self.end = max(self.end, tick + 1)


def _placed(
    trace: Trace, own: list[int], meetings: Mapping[records.CollectiveKey, _TickMeeting]
) -> Iterator[Meeting]:
    """Give the records of a rank their ticks; yield a collective that others may still launch."""
    for record in trace:
        tick = own[-1] + 1 if own else 0
        if isinstance(record, records.CollectiveWait) and record.key in meetings:
            yield from meetings[record.key].awaited()
            tick = max(tick, meetings[record.key].end)
        elif isinstance(record, records.CollectiveLaunch):
            meetings[record.key].launch(tick)
        own.append(tick)


def timeline_of(traces: Traces) -> Timeline:
    """Lay out the traces of all ranks."""
    ticks = ticks_of(traces)
    events = dict[RecordKey, TimelineEvent]()
    for rank, trace in enumerate(traces):
        of_rank = _RankEvents(rank, trace, ticks)
        for index, record in enumerate(trace):
            if event := of_rank.event(index, record):
                events[rank, index] = event
    lanes = {rank: _lanes(trace) for rank, trace in enumerate(traces) if trace}
    return Timeline(lanes, events, (*_arrows(traces, events),), ticks.last)


class _RankEvents:
    """Makes the events of one rank."""

    def __init__(self, rank: int, trace: Trace, ticks: Ticks) -> None:
        self._rank = rank
        self._ticks = ticks
        self._own_ticks = ticks.of_records[rank]
        # Tick of a return, by the position of its call.
        self._returns = dict[int, int]()
        self._first_waits = dict[records.CollectiveKey, int]()
        memory, opened = set[tuple[MemoryRegion, str]](), list[int]()
        for index, record in enumerate(trace):
            match record:
                case records.SubjectCall():
                    opened.append(index)
                case records.SubjectReturn():
                    memory |= {(e, name) for name, e in record.gradients.items()}
                    if opened:
                        self._returns[opened.pop()] = self._own_ticks[index]
                case records.CollectiveWait():
                    self._first_waits.setdefault(record.key, self._own_ticks[index])
        # Memory of gradients by parameter, as the calls of the subject leave it.
        self._named_memory = sorted(memory, key=lambda pair: pair[1])

    def event(self, index: int, record: records.TraceRecord) -> TimelineEvent | None:
        """Return the event of a record at a position of the trace; None for four kinds.

        A return is the end of its call's event. A read of unwritten memory is a fact about an
        access, and a time that was compared is one about the host, as a group that was made is.
        """
        at = LanePoint(self._rank, _lane(record), self._own_ticks[index])
        event = partial(
            TimelineEvent, place=at, end=at.tick + 1, moment=str(record.moment)
        )
        match record:
            case records.SubjectCall(moment=moment):
                end = max(self._returns.get(index, self._ticks.last), at.tick + 1)
                return event(kind="call", name=moment.phase, end=end)
            case records.CollectiveLaunch():
                met = self._ticks.ends.get(record.key)
                end = self._ticks.last if met is None else met
                return event(
                    end=end if met is None else self._first_waits.get(record.key, end),
                    kind="collective",
                    name=" ".join(filter(None, (record.operation, record.reduce_op))),
                    source=record.source,
                    parameters=record.parameters,
                    num_bytes=_num_bytes(record.regions),
                    is_open=met is None,
                )
            case records.Access():
                return event(
                    kind=_ACCESS_KINDS.get(record.source, "operator"),
                    name=record.operator,
                    source=record.source,
                    parameters=self._named_in((*record.reads, *record.writes)),
                    num_bytes=_num_bytes(record.writes or record.reads),
                )
            case records.CollectiveWait():
                return event(kind="wait", name="wait for a collective")
            case records.Mark(source=source):
                return event(kind="mark", name="record event", source=source)
            case records.StreamWait(stream=stream, source=source):
                name = f"{stream} waits for an event"
                return event(kind="stream_wait", name=name, source=source)
            case records.HostWait(source=source):
                return event(kind="host_wait", name="the host waits", source=source)
            case records.StreamCreated(stream=stream, source=source):
                name = f"{stream} is made"
                return event(kind="stream_created", name=name, source=source)
            case records.StorageFreed(storage=storage, num_bytes=num_bytes):
                name = f"storage {storage} is given back"
                return event(kind="freed", name=name, num_bytes=num_bytes)
        return None

    def _named_in(self, touched: Sequence[MemoryRegion]) -> tuple[str, ...]:
        """Name the parameters whose gradients lie in some memory."""
        named = self._named_memory
        return tuple(
            dict.fromkeys(name for own, name in named if overlap([own], touched))
        )


def _lane(record: records.TraceRecord) -> str:
    match record:
        case records.Access() | records.CollectiveLaunch():
            return record.runs_on
        case records.SubjectCall() | records.SubjectReturn():
            return CALLS
        case records.HostWait() | records.StreamCreated():
            return CALLS
    return record.stream


def _lanes(trace: Trace) -> tuple[str, ...]:
    used = [CALLS]
    for record in trace:
        used += [record.stream] if isinstance(record, records.CollectiveLaunch) else []
        used.append(_lane(record))
    return tuple(dict.fromkeys(used))


def _num_bytes(regions: Sequence[MemoryRegion]) -> int:
    return sum(region.end_byte - region.start_byte for region in regions)


_Launch = tuple[LanePoint, records.CollectiveLaunch]


def _arrows(
    traces: Traces, events: Mapping[RecordKey, TimelineEvent]
) -> Iterator[Arrow]:
    """Yield arrows of launches and orders, then of ranks that meet, then of waits.

    A wait for an event that was never recorded has no effect, and no arrow.
    """
    marks = dict[tuple[int, int], LanePoint]()
    launches = dict[records.CollectiveKey, dict[int, _Launch]]()
    waits = list[tuple[records.CollectiveKey, LanePoint]]()
    for (rank, index), event in events.items():
        at = event.place
        match traces[rank][index]:
            case records.Mark(mark=mark):
                marks[rank, mark] = at
            case records.StreamWait(mark=mark) | records.HostWait(mark=mark):
                if (rank, mark) in marks:
                    yield Arrow("order", marks[rank, mark], at)
            case records.CollectiveLaunch() as launch:
                launches.setdefault(launch.key, {})[rank] = at, launch
                if launch.stream != launch.communication_stream:
                    yield Arrow("launch", LanePoint(rank, launch.stream, at.tick), at)
            case records.CollectiveWait() as wait:
                waits.append((wait.key, at))
    for launched in launches.values():
        for (tail, one), (head, other) in itertools.pairwise(launched.values()):
            agree = other.matched_arguments == one.matched_arguments
            yield Arrow("match" if agree else "mismatch", tail, head)
    for key, head in waits:
        if head.rank in launches.get(key, {}):
            tail, _ = launches[key][head.rank]
            yield Arrow("wait", tail, head)
