"""A record of the trace in a few words, for a node of the graph."""

from __future__ import annotations

from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StorageFreed,
    StreamCreated,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.source_lines import NoLine


def record_words(record: TraceRecord) -> str:
    """Return what a record did, and on which stream; "" for what the engine did itself."""
    match record:
        case CollectiveLaunch():
            return _launch(record)
        case Access(source=source) if source == NoLine.AUTOGRAD:
            return ""
        case Access():
            by = " by the training program" if record.source == NoLine.OPTIMIZER else ""
            return f"{short_name(record.operator)}{by} on {record.stream}"
        case CollectiveWait():
            return f"{record.stream} waits for a collective"
        case StreamWait():
            return f"{record.stream} waits for an event"
        case Mark():
            return f"records an event of {record.stream}"
        case HostWait():
            return "the host waits for an event"
        case StorageFreed():
            return f"gives storage {record.storage} back to {record.stream}"
        case StreamCreated():
            return f"makes {record.stream}"
    return ""


def short_name(operator: str) -> str:
    """Return the name of an operator without its library and its usual overloads."""
    name = operator.removeprefix("aten.")
    for overload in (".default", ".Tensor", ".Scalar"):
        name = name.removesuffix(overload)
    return name


def _launch(record: CollectiveLaunch) -> str:
    reduce_op = f" {record.reduce_op}" if record.reduce_op else ""
    of = f" of {record.numel} x {record.dtype}" if record.dtype else ""
    return (
        f"launches {record.operation}{reduce_op}{of} on {record.communication_stream}"
    )
