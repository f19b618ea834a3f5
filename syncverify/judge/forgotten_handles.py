"""Collectives whose handle a program drops: no stream and no host ever waits for them.

Such a program is not wrong for certain, since nothing may read the result. It is reported
as a remark: the result may never be there, and NCCL holds the memory of the tensors until a wait.

Note [A later wait on the same group]
    The stream of a communicator runs in order, so a wait for a later collective waits for the
    earlier ones too. Programs rely on that, and read all results after the last wait. Where nothing
    ever reads a result, the later wait was hardly meant for it: that is a remark, too. A line whose
    results are read in another step is none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from syncverify.trace.records import (
    Access,
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Run
from syncverify.trace.source_lines import Origin


@dataclass(frozen=True, slots=True)
class ForgottenHandle:
    """A line that issues a collective which nothing waits for.

    Attributes:
        operation: The collective.
        ranks: Global ranks on which nothing waits.
        is_ordered: Whether a wait for a later collective orders it, and nothing reads its result.
    """

    operation: str
    source: Origin
    ranks: tuple[int, ...]
    is_ordered: bool = False

    @property
    def lines(self) -> tuple[Origin, ...]:
        """The lines that the remark names."""
        return (self.source,)


def forgotten_handles(run: Run) -> list[ForgottenHandle]:
    """Find the lines of a run that came to its end, one for all ranks and times."""
    if run.fault is not None:  # the wait may come later
        return []
    by_line = dict[tuple[str, Origin, bool], set[int]]()
    for rank, rank_run in enumerate(run.ranks):
        for launch, is_ordered in _forgotten(rank_run.trace):
            if launch.is_of_torch:
                continue  # no program can wait for it
            key = launch.operation, launch.source, is_ordered
            by_line.setdefault(key, set()).add(rank)
    return [
        ForgottenHandle(operation, source, tuple(sorted(ranks)), is_ordered)
        for (operation, source, is_ordered), ranks in by_line.items()
    ]


@dataclass(slots=True)
class _Waits:
    """The waits of one rank, by stream that runs collectives.

    Attributes:
        issued: Launches, in order.
        awaited: Number of first launches that any wait orders.
        marked: Number of those that a wait for a mark orders.
        keys: Collectives that are waited for themselves.
    """

    issued: dict[str, list[CollectiveLaunch]] = field(
        default_factory=lambda: defaultdict(list)
    )
    awaited: Counter[str] = field(default_factory=Counter)
    marked: Counter[str] = field(default_factory=Counter)
    keys: set[CollectiveKey] = field(default_factory=set)

    @classmethod
    def of(cls, trace: Sequence[TraceRecord]) -> _Waits:
        """Return the waits of a trace."""
        waits = cls()
        places = dict[CollectiveKey, tuple[str, int]]()
        marks = dict[int, tuple[str, int]]()
        for record in trace:
            match record:
                case CollectiveLaunch() if record.runs_on != record.stream:
                    waits.issued[record.runs_on].append(record)
                    place = record.runs_on, len(waits.issued[record.runs_on])
                    places[record.key] = place
                case Mark():
                    count = len(waits.issued.get(record.stream, ()))
                    marks[record.mark] = record.stream, count
                case StreamWait() | HostWait() if record.mark in marks:
                    waits._order(*marks[record.mark], waits.marked)
                case CollectiveWait() if record.key in places:
                    waits.keys.add(record.key)
                    waits._order(*places[record.key], waits.awaited)
        return waits

    def _order(self, stream: str, count: int, ordered: Counter[str]) -> None:
        ordered[stream] = max(ordered[stream], count)
        self.awaited[stream] = max(self.awaited[stream], count)


def _forgotten(
    trace: Sequence[TraceRecord],
) -> Iterator[tuple[CollectiveLaunch, bool]]:
    """Yield the launches of a rank that nothing waits for, and whether a later wait orders them."""
    waits = _Waits.of(trace)
    ordered = list[CollectiveLaunch]()
    for stream, launches in waits.issued.items():
        yield from ((each, False) for each in launches[waits.awaited[stream] :])
        between = launches[waits.marked[stream] : waits.awaited[stream]]
        ordered += [e for e in between if e.key not in waits.keys and e.written]
    if ordered:
        yield from ((each, True) for each in _unread(trace, ordered))


def _unread(
    trace: Sequence[TraceRecord], launches: Sequence[CollectiveLaunch]
) -> Iterator[CollectiveLaunch]:
    """Yield the launches of which nothing reads a result, nor those of their line."""
    reads = defaultdict[int, list[tuple[int, MemoryRegion]]](list)
    places = dict[int, int]()
    for place, record in enumerate(trace):
        if isinstance(record, Access | CollectiveLaunch):
            places[id(record)] = place
            for region in record.reads:
                reads[region.storage].append((place, region))
    if not any(isinstance(record, Access) for record in trace):
        return  # accesses were not recorded

    def is_read(launch: CollectiveLaunch) -> bool:
        return any(
            place > places[id(launch)] and region.overlaps(written)
            for written in launch.written
            for place, region in reads[written.storage]
        )

    read_lines = {each.source for each in launches if is_read(each)}
    yield from (each for each in launches if each.source not in read_lines)
