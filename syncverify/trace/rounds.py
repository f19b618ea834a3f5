"""Walks through the traces of all ranks at once, where ranks wait for each other's collectives."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.run import Traces


@dataclass(slots=True, eq=False)
class Meeting:
    """A collective in which ranks meet."""

    num_absent: int = 0  # ranks that have not launched it yet; 0 or less lets all go on

    def awaited(self) -> Iterator["Meeting"]:
        """Yield it as long as a rank has to wait for its other ranks."""
        while self.num_absent > 0:
            yield self


def num_launches(traces: Traces) -> Counter[CollectiveKey]:
    """Count the ranks that launch each collective.

    A rank whose trace ends before the launch does not count, for nothing is known about it.
    """
    return Counter(
        record.key
        for trace in traces
        for record in trace
        if type(record) is CollectiveLaunch
    )


def walk_together(walks: Iterable[Iterator[Meeting]]) -> None:
    """Walk all traces to their ends; each walk yields a collective for which it has to wait."""
    waiting = [*walks]
    while waiting:
        heads = [(walk, next(walk, None)) for walk in waiting]
        waiting = [walk for walk, awaited in heads if awaited is not None]
        standing = [awaited for _, awaited in heads if awaited is not None]
        if standing and all(awaited.num_absent > 0 for awaited in standing):
            # A deadlock on a real machine: `every_wait_completes` judges it. Here the first
            # collective counts as complete, so that the rest of the traces has a place as well.
            standing[0].num_absent = 0
