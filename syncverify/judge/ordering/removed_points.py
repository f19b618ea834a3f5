"""Synchronization points of traces, and traces without one of them.

A trace without a point is what a rank would have recorded if the line did not synchronize: the
host queues the same work. So an edge of the happens-before graph is gone, and the trace can be
judged again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from syncverify.trace.records import (
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StorageFreed,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.run import Traces
from syncverify.trace.source_lines import Origin, SourceLine
from syncverify.trace.sync_points import PointKind, SyncPoint

_BARRIER = "barrier"


def points_of(traces: Traces) -> list[SyncPoint]:
    """List the points of the subject's lines in traces, in order of appearance."""
    found = (point for trace in traces for point in _points(trace))
    return [*dict.fromkeys(found)]


def without(traces: Traces, point: SyncPoint) -> Traces:
    """Return the traces of all ranks without the records of a point."""
    return [[*_without(trace, point)] for trace in traces]


def _points(trace: Sequence[TraceRecord]) -> Iterator[SyncPoint]:
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


def _synchronous(trace: Sequence[TraceRecord]) -> set[CollectiveKey]:
    """Return the collectives that torch waits for in the call that launches them."""
    return {
        each.key
        for each in trace
        if isinstance(each, CollectiveLaunch)
        and (each.runs_on == each.stream or each.operation == _BARRIER)
    }


def _without(trace: Sequence[TraceRecord], point: SyncPoint) -> Iterator[TraceRecord]:
    gone = _barriers_at(trace, point)
    for record in trace:
        match record:
            case StorageFreed() if point.kind == "record_stream":
                yield _without_streams(record, point.line)
            case CollectiveLaunch() | CollectiveWait() if record.key in gone:
                pass
            case _ if (point.kind, point.line) not in [*_kinds(record)]:
                yield record


def _barriers_at(trace: Sequence[TraceRecord], point: SyncPoint) -> set[CollectiveKey]:
    return {
        each.key
        for each in trace
        if isinstance(each, CollectiveLaunch)
        and point.kind == each.operation == _BARRIER
        and each.source == point.line
    }


def _without_streams(record: StorageFreed, line: SourceLine) -> StorageFreed:
    pairs = zip(record.recorded_streams, record.recorded_at, strict=True)
    kept = [(stream, origin) for stream, origin in pairs if origin != line]
    return replace(
        record,
        recorded_streams=tuple(stream for stream, _ in kept),
        recorded_at=tuple(origin for _, origin in kept),
    )
