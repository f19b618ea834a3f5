"""Events of a timeline: what a record of a trace shows, in which lane, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from syncverify.trace.records import (
    Access,
    ClockCompared,
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    GroupMade,
    HostWait,
    Mark,
    StorageFreed,
    StreamCreated,
    StreamWait,
    SubjectCall,
    SubjectReturn,
    TraceRecord,
    UnwrittenRead,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import NoLine, Origin
from syncverify.trace.timeline.ticks import Ticks
from syncverify.trace.timeline.timeline import (
    CALLS,
    EventKind,
    LanePoint,
    TimelineEvent,
)

_ACCESS_KINDS: Final[Mapping[Origin, EventKind]] = {
    NoLine.AUTOGRAD: "accumulate",
    NoLine.OPTIMIZER: "optimizer",
}
_WITHOUT_EVENT = SubjectReturn | UnwrittenRead | ClockCompared | GroupMade
# Records of one tick each.
_Point = CollectiveWait | Mark | StreamWait | HostWait | StreamCreated | StorageFreed


def lanes_of(trace: Sequence[TraceRecord]) -> tuple[str, ...]:
    """List the lanes of a rank, `CALLS` first, then streams in the order of their use."""
    return tuple(dict.fromkeys((CALLS, *_used_lanes(trace))))


def events_of(
    rank: int, trace: Sequence[TraceRecord], ticks: Ticks
) -> Iterator[tuple[int, TimelineEvent]]:
    """Yield position and event of each record of a rank, except of four kinds.

    A return is the end of its call's event. A read of unwritten memory is a fact about an access,
    and a time that was compared is one about the host, as a group that was made is.
    """
    events = _RankEvents(rank, trace, ticks)
    for index, record in enumerate(trace):
        if not isinstance(record, _WITHOUT_EVENT):
            yield index, events.event(index, record)


class _RankEvents:
    """Makes the events of one rank."""

    def __init__(self, rank: int, trace: Sequence[TraceRecord], ticks: Ticks) -> None:
        self._rank = rank
        self._ticks = ticks
        self._own_ticks = ticks.of_records[rank]
        self._returns = _positions_of_returns(trace)
        self._named_memory = _named_memory(trace)
        self._first_waits = _first_waits(trace, self._own_ticks)

    def event(self, index: int, record: TraceRecord) -> TimelineEvent:
        """Return the event of a record at a position of the trace."""
        at = LanePoint(self._rank, _lane(record), self._own_ticks[index])
        match record:
            case CollectiveLaunch():
                return self._launch(at, record)
            case Access():
                return self._access(at, record)
            case SubjectCall():
                return self._call(at, record, self._returns.get(index))
            case _:
                assert not isinstance(record, _WITHOUT_EVENT)
                return _point(at, record)

    def _call(
        self, at: LanePoint, record: SubjectCall, returned: int | None
    ) -> TimelineEvent:
        end = self._ticks.last if returned is None else self._own_ticks[returned]
        end = max(end, at.tick + 1)
        return TimelineEvent(at, end, "call", record.moment.phase, str(record.moment))

    def _launch(self, at: LanePoint, record: CollectiveLaunch) -> TimelineEvent:
        end = self._ticks.ends.get(record.key)
        return TimelineEvent(
            place=at,
            end=self._ticks.last
            if end is None
            else self._first_waits.get(record.key, end),
            kind="collective",
            name=" ".join(filter(None, (record.operation, record.reduce_op))),
            moment=str(record.moment),
            source=record.source,
            parameters=record.parameters,
            num_bytes=_num_bytes(record.regions),
            is_open=end is None,
        )

    def _access(self, at: LanePoint, record: Access) -> TimelineEvent:
        touched = (*record.reads, *record.writes)
        names = dict.fromkeys(
            name
            for region, name in self._named_memory
            if any(region.overlaps(each) for each in touched)
        )
        return TimelineEvent(
            place=at,
            end=at.tick + 1,
            kind=_ACCESS_KINDS.get(record.source, "operator"),
            name=record.operator,
            moment=str(record.moment),
            source=record.source,
            parameters=tuple(names),
            num_bytes=_num_bytes(record.writes or record.reads),
        )


def _point(at: LanePoint, record: _Point) -> TimelineEvent:
    kind, name = _kind_and_name(record)
    return TimelineEvent(
        place=at,
        end=at.tick + 1,
        kind=kind,
        name=name,
        moment=str(record.moment),
        source=None
        if isinstance(record, CollectiveWait | StorageFreed)
        else record.source,
        num_bytes=record.num_bytes if isinstance(record, StorageFreed) else 0,
    )


def _kind_and_name(record: _Point) -> tuple[EventKind, str]:
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


def _positions_of_returns(trace: Sequence[TraceRecord]) -> dict[int, int]:
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


def _used_lanes(trace: Sequence[TraceRecord]) -> Iterator[str]:
    for record in trace:
        if isinstance(record, CollectiveLaunch):
            yield record.stream
        yield _lane(record)


def _num_bytes(regions: Sequence[MemoryRegion]) -> int:
    return sum(region.end_byte - region.start_byte for region in regions)
