"""Collectives whose handle a program drops: no stream and no host ever waits for them.

Such a program is not wrong for certain, since nothing may read the result. It is reported
as a remark: the result may never be there, and NCCL holds the memory of the tensors until a wait.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syncverify.trace.records import (
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.run import Run
from syncverify.trace.source_lines import Origin


@dataclass(frozen=True, slots=True)
class ForgottenHandle:
    """A line that issues a collective which nothing waits for.

    Attributes:
        operation: The collective.
        source: The line.
        ranks: Global ranks on which nothing waits.
    """

    operation: str
    source: Origin
    ranks: tuple[int, ...]


def forgotten_handles(run: Run) -> list[ForgottenHandle]:
    """Find the lines of a run that came to its end, one for all ranks and times."""
    if run.fault is not None:  # the wait may come later
        return []
    by_line = dict[tuple[str, Origin], set[int]]()
    for rank, rank_run in enumerate(run.ranks):
        for launch in _forgotten(rank_run.trace):
            by_line.setdefault((launch.operation, launch.source), set()).add(rank)
    return [
        ForgottenHandle(operation, source, tuple(sorted(ranks)))
        for (operation, source), ranks in by_line.items()
    ]


def _forgotten(trace: Sequence[TraceRecord]) -> Iterator[CollectiveLaunch]:
    """Yield the launches of a rank after which nothing waits for their stream.

    The stream of a communicator runs in order, so a wait for a later collective, or for a
    later mark on it, waits for the earlier ones too.
    """
    issued = defaultdict[str, list[CollectiveLaunch]](list)
    places = dict[CollectiveKey, tuple[str, int]]()
    marks = dict[int, tuple[str, int]]()
    awaited = Counter[str]()  # number of launches of a stream that something waits for
    for record in trace:
        place: tuple[str, int] | None = None
        match record:
            case CollectiveLaunch() if record.runs_on != record.stream:
                issued[record.runs_on].append(record)
                places[record.key] = record.runs_on, len(issued[record.runs_on])
            case Mark():
                marks[record.mark] = record.stream, len(issued[record.stream])
            case StreamWait() | HostWait():
                place = marks.get(record.mark)
            case CollectiveWait():
                place = places.get(record.key)
        if place is not None:
            awaited[place[0]] = max(awaited[place[0]], place[1])
    for stream, launches in issued.items():
        yield from launches[awaited[stream] :]
