"""References that a subject keeps until a wait, and traces in which they are dropped at once.

Memory goes back to its pool with the last reference. A subject that lets another stream use the
memory has to keep a reference until its pool's stream waits for that use, or to call
`record_stream`. No line drops such a reference: a list or a function ends. So the point stands at
the line of the last use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from syncverify.trace.records import (
    Access,
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    MemoryUse,
    StorageFreed,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.run import Traces
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.sync_points import SyncPoint

KIND: Final = "reference"


@dataclass(slots=True)
class _Memory:
    """One storage so far."""

    last: MemoryUse
    since: int
    is_awaited: bool  # whether a stream or the host has waited for something since then
    streams: set[str]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A reference that the subject keeps."""

    point: SyncPoint
    freed: int  # position of the free in the trace
    since: int


def kept_references(traces: Traces) -> list[SyncPoint]:
    """List the points of kept references, in order of appearance."""
    found = (kept.point for trace in traces for kept in _kept(trace))
    return [*dict.fromkeys(found)]


def dropped_at_once(traces: Traces, point: SyncPoint) -> Traces:
    """Return the traces of ranks that drop the references of a point after the last use."""
    return [_dropped(trace, point) for trace in traces]


def _dropped(trace: Sequence[TraceRecord], point: SyncPoint) -> list[TraceRecord]:
    moved = [kept for kept in _kept(trace) if kept.point == point]
    gone = {kept.freed for kept in moved}
    rest = list[TraceRecord]()
    for index, record in enumerate(trace):
        if index not in gone:
            rest.append(record)
        for kept in moved:
            freed = trace[kept.freed]
            if kept.since == index and isinstance(freed, StorageFreed):
                rest.append(replace(freed, moment=record.moment))
    return rest


def _kept(trace: Sequence[TraceRecord]) -> Iterator[_Kept]:
    """Yield the references of a rank that are kept over a wait after the last use."""
    memory = dict[int, _Memory]()
    in_flight = dict[CollectiveKey, set[int]]()
    for index, record in enumerate(trace):
        match record:
            case Access() | CollectiveLaunch():
                used = {each.storage for each in (*record.reads, *record.writes)}
                for number in used:
                    known = memory.setdefault(
                        number, _Memory(record, index, False, set())
                    )
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
        yield _Kept(SyncPoint(KIND, line), index, memory.since)
