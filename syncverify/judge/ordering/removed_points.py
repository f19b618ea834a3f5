"""Synchronization points of traces, and traces without one of them.

A trace without a point is what a rank would have recorded if the line did not synchronize: the
host queues the same work. So an edge of the happens-before graph is gone, and the trace can be
judged again.

Note [References that are kept until a wait]
    Memory goes back to its pool with the last reference. A subject that lets another stream use the
    memory has to keep a reference until its pool's stream waits for that use, or to call
    `record_stream`. No line drops such a reference: a list or a function ends. So the point stands at
    the line of the last use, and a trace without it drops the reference after that use.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from syncverify.trace.records import (
    Access,
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    MemoryUse,
    StorageFreed,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.run import Trace, Traces
from syncverify.trace.source_lines import Origin, SourceLine
from syncverify.trace.sync_points import PointKind, SyncPoint

REFERENCE: Final = "reference"
_BARRIER = "barrier"


def points_of(traces: Traces) -> list[SyncPoint]:
    """List the points of the subject's lines in traces, in order of appearance."""
    found = (point for trace in traces for point in _points(trace))
    return [*dict.fromkeys(found)]


def kept_references(traces: Traces) -> list[SyncPoint]:
    """List the points of references that are kept until a wait, in order of appearance."""
    found = (kept.point for trace in traces for kept in _kept(trace))
    return [*dict.fromkeys(found)]


def without(traces: Traces, point: SyncPoint) -> Traces:
    """Return the traces of all ranks without the records of a point."""
    rest = _dropped if point.kind == REFERENCE else _without
    return [[*rest(trace, point)] for trace in traces]


def _points(trace: Trace) -> Iterator[SyncPoint]:
    waits = {each.source for each in trace if isinstance(each, StreamWait | HostWait)}
    synchronous = _synchronous(trace)
    for record in trace:
        for kind, origin in _kinds(record):
            if not isinstance(origin, SourceLine):
                continue
            # `wait_stream` and `synchronize` mark a stream and wait at once.
            is_part_of_wait = kind == "event" and origin in waits
            is_part_of_launch = (
                isinstance(record, CollectiveWait) and record.key in synchronous
            )
            if not (is_part_of_wait or is_part_of_launch):
                yield SyncPoint(kind, origin)


def _kinds(record: TraceRecord) -> Iterator[tuple[PointKind, Origin]]:
    match record:
        case StreamWait():
            yield "stream_wait", record.source
        case Mark():
            yield "event", record.source
        case HostWait() if record.is_asked_for:
            yield "host_wait", record.source
        case CollectiveWait():
            yield "work_wait", record.source
        case CollectiveLaunch(operation=operation) if operation == _BARRIER:
            yield "barrier", record.source
        case StorageFreed():
            for origin in record.recorded_at:
                yield "record_stream", origin


def _synchronous(trace: Trace) -> set[CollectiveKey]:
    """Return the collectives that torch waits for in the call that launches them."""
    return {
        each.key
        for each in trace
        if isinstance(each, CollectiveLaunch)
        and (each.runs_on == each.stream or each.operation == _BARRIER)
    }


def _without(trace: Trace, point: SyncPoint) -> Iterator[TraceRecord]:
    gone = {
        each.key
        for each in trace
        if isinstance(each, CollectiveLaunch)
        and point.kind == each.operation == _BARRIER
        and each.source == point.line
    }
    for record in trace:
        match record:
            case StorageFreed() if point.kind == "record_stream":
                yield _without_streams(record, point.line)
            case CollectiveLaunch() | CollectiveWait() if record.key in gone:
                pass
            case _ if (point.kind, point.line) not in [*_kinds(record)]:
                yield record


def _without_streams(record: StorageFreed, line: SourceLine) -> StorageFreed:
    pairs = zip(record.recorded_streams, record.recorded_at, strict=True)
    kept = [(stream, origin) for stream, origin in pairs if origin != line]
    return replace(
        record,
        recorded_streams=tuple(stream for stream, _ in kept),
        recorded_at=tuple(origin for _, origin in kept),
    )


@dataclass(slots=True)
class _Memory:
    """One storage so far."""

    last: MemoryUse
    since: int
    # Whether a stream or the host has waited for something since then.
    is_awaited: bool = False
    streams: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A reference that the subject keeps."""

    point: SyncPoint
    freed: int  # position of the free in the trace
    since: int


def _dropped(trace: Trace, point: SyncPoint) -> Iterator[TraceRecord]:
    moved = [kept for kept in _kept(trace) if kept.point == point]
    gone = {kept.freed for kept in moved}
    for index, record in enumerate(trace):
        if index not in gone:
            yield record
        for kept in moved:
            freed = trace[kept.freed]
            if kept.since == index and isinstance(freed, StorageFreed):
                yield replace(freed, moment=record.moment)


def _kept(trace: Trace) -> Iterator[_Kept]:
    """Yield the references of a rank that are kept over a wait after the last use."""
    memory = dict[int, _Memory]()
    in_flight = dict[CollectiveKey, set[int]]()
    for index, record in enumerate(trace):
        match record:
            case Access() | CollectiveLaunch():
                used = {each.storage for each in (*record.reads, *record.writes)}
                for number in used:
                    known = memory.setdefault(number, _Memory(record, index))
                    known.last, known.since, known.is_awaited = record, index, False
                    known.streams.add(record.runs_on)
                if isinstance(record, CollectiveLaunch):
                    in_flight[record.key] = used
            case StreamWait() | HostWait() | CollectiveWait():
                for each in memory.values():
                    each.is_awaited = True
                if isinstance(record, CollectiveWait):
                    # torch itself keeps the tensors of a collective until its wait.
                    for number in in_flight.pop(record.key, ()):
                        if number in memory:
                            memory[number].since = index
                            memory[number].is_awaited = False
            case StorageFreed(storage=number) if number in memory:
                yield from _of_freed(index, record, memory.pop(number))


def _of_freed(index: int, freed: StorageFreed, memory: _Memory) -> Iterator[_Kept]:
    line = memory.last.source
    is_elsewhere = bool(memory.streams - {freed.stream})
    # Other memory may be kept by the program, which drops it when it likes.
    is_own = isinstance(freed.made_at, SourceLine)
    is_kept = is_own and memory.is_awaited and is_elsewhere
    if is_kept and isinstance(line, SourceLine):
        yield _Kept(SyncPoint(REFERENCE, line), index, memory.since)
