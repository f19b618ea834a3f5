"""Waits that a subject lacks, called edges, and traces with such an edge inserted.

An edge stands for a line of code. It is inserted wherever that line would run: on every
rank, in every step.
"""

from dataclasses import dataclass, replace

from typing_extensions import override

from syncverify.trace.records import (
    HOST,
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    Moment,
    Phase,
    StorageFreed,
    StreamWait,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.run import Trace, Traces
from syncverify.trace.source_lines import NoLine, Origin

# One number for all inserted marks: each is recorded and waited for at once.
_INSERTED_MARK = -1


@dataclass(frozen=True, slots=True)
class BeforeUse:
    """The point before a line of code queues work on a stream."""

    source: Origin
    stream: str
    is_of_view: bool = False  # the work is a read through a view that the line made

    @override
    def __str__(self) -> str:
        if self.is_of_view:
            return f"before the view made at {self.source} is read"
        is_named = isinstance(self.source, NoLine) and self.source is not NoLine.RETURN
        return f"before {self.source}{' goes on' if is_named else ''}"

    def is_before(self, record: TraceRecord) -> bool:
        """Tell whether a record is work that the line queues on the stream."""
        return (
            isinstance(record, Access | CollectiveLaunch)
            and record.source == self.source
            and record.stream == self.stream
        )


@dataclass(frozen=True, slots=True)
class BeforeReturn:
    """The point before the subject returns from a call."""

    phase: Phase

    @override
    def __str__(self) -> str:
        return f"before {self.phase}() returns"

    def is_before(self, record: TraceRecord) -> bool:
        """Tell whether a record is a return from the call."""
        return isinstance(record, SubjectReturn) and record.moment.phase == self.phase


@dataclass(frozen=True, slots=True)
class BeforeFree:
    """The point before the last reference to memory of a stream's pool goes away."""

    stream: str

    @override
    def __str__(self) -> str:
        return "before the last reference to its memory goes away"

    def is_before(self, record: TraceRecord) -> bool:
        """Tell whether a record is a free of memory of the pool."""
        return isinstance(record, StorageFreed) and record.stream == self.stream


InsertionPoint = BeforeUse | BeforeReturn | BeforeFree


@dataclass(frozen=True, slots=True)
class WaitForStream:
    """A stream, or the host, waits for all work that another stream holds."""

    waiting: str  # a stream, or the host
    awaited: str
    point: InsertionPoint

    @override
    def __str__(self) -> str:
        if self.waiting == HOST:
            return f"insert `{self.awaited}.synchronize()` {self.point}"
        return f"insert `{self.waiting}.wait_stream({self.awaited})` {self.point}"

    def records(self, moment: Moment, _: Trace) -> list[TraceRecord]:
        """Return the records to insert at a moment."""
        wait = (
            HostWait(moment, _INSERTED_MARK, NoLine.UNKNOWN)
            if self.waiting == HOST
            else StreamWait(moment, self.waiting, _INSERTED_MARK, NoLine.UNKNOWN)
        )
        return [Mark(moment, self.awaited, _INSERTED_MARK, NoLine.UNKNOWN), wait]


@dataclass(frozen=True, slots=True)
class WaitForWork:
    """A stream waits for the collectives that a line launched."""

    waiting: str  # a stream
    operation: str
    launched_at: Origin
    point: InsertionPoint
    is_functional: bool = False  # functional collectives return no handle

    @override
    def __str__(self) -> str:
        call = "wait_tensor()` of the result" if self.is_functional else "work.wait()`"
        of_work = f"of the {self.operation} launched at {self.launched_at}"
        while_current = f"while `{self.waiting}` is current"
        return f"insert `{call} {of_work}, {while_current}, {self.point}"

    def records(self, moment: Moment, since: Trace) -> list[TraceRecord]:
        """Return the records to insert at a moment, for the launches since the point before."""
        return [
            CollectiveWait(
                moment, each.ranks, each.sequence, self.waiting, each.communicator
            )
            for each in since
            if isinstance(each, CollectiveLaunch) and each.source == self.launched_at
        ]


@dataclass(frozen=True, slots=True)
class RecordStream:
    """`Tensor.record_stream`: the allocator learns that a stream uses the memory."""

    stream: str
    used_at: Origin  # line of the use

    @override
    def __str__(self) -> str:
        return (
            f"insert `tensor.record_stream({self.stream})` after {self.used_at}, or hold "
            f"a reference until its stream waited for `{self.stream}`"
        )

    def inserted(self, trace: Trace) -> list[TraceRecord]:
        """Return the trace of a rank with this call."""
        used = {
            region.storage
            for record in trace
            if isinstance(record, Access | CollectiveLaunch)
            and record.source == self.used_at
            for region in (*record.reads, *record.writes)
        }
        return [
            replace(record, recorded_streams=(*record.recorded_streams, self.stream))
            if isinstance(record, StorageFreed) and record.storage in used
            else record
            for record in trace
        ]


Edge = WaitForStream | WaitForWork | RecordStream


def streams_of(edge: Edge) -> tuple[str, ...]:
    """Return the streams that the text of an edge names, in order."""
    match edge:
        case WaitForStream(waiting, awaited):
            return waiting, awaited
        case WaitForWork(stream) | RecordStream(stream):
            return (stream,)


def with_edge(traces: Traces, edge: Edge) -> Traces:
    """Return the traces of all ranks with an edge inserted."""
    if isinstance(edge, RecordStream):
        return [edge.inserted(trace) for trace in traces]
    return [_inserted(trace, edge) for trace in traces]


def _inserted(trace: Trace, wait: WaitForStream | WaitForWork) -> list[TraceRecord]:
    """Insert a wait at each of its points, for the records since the point before."""
    result: list[TraceRecord] = []
    since = 0
    for record in trace:
        if wait.point.is_before(record):
            result += wait.records(record.moment, result[since:])
            since = len(result)
        result.append(record)
    return result
