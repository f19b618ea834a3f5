"""Inversions: legal orders in which the second use of a race runs first.

The first use runs late, and with it all work that is ordered after it. All other work goes
on. The streams allow this order, since all work that must wait for the late work is late
as well.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from typing_extensions import override

from syncverify.judge.ordering.happens_before import (
    Clock,
    Lane,
    Observer,
    Semantics,
    walk,
)
from syncverify.judge.ordering.races import EarlyFree, Race
from syncverify.trace.records import CollectiveLaunch, CollectiveWait, MemoryUse
from syncverify.trace.run import Trace, Traces


@dataclass(frozen=True, slots=True)
class Inversion:
    """An order in which some work of a rank runs late."""

    rank: int
    late: frozenset[int]  # positions in the trace: work that starts late
    # Positions: work that starts in time and writes its results late.
    late_results: frozenset[int]
    until: int  # position before which all other work runs first
    overwritten: int | None = None


@dataclass(slots=True)
class After(Observer):
    """An observer that notes the work that is ordered after one record."""

    rank: int
    first: int  # position of the record
    # Position at which the host has waited for the record; from there on it cannot be late.
    end: float = math.inf
    _lane: int = -1
    _count: float = math.inf  # until the walk reaches the record: no clock contains it
    _indices: list[int] = field(default_factory=list)

    @override
    def queued(self, index: int, lane: Lane, use: MemoryUse) -> None:
        if lane.rank != self.rank:
            return
        if index == self.first:
            self._lane, self._count = lane.index, lane.clock[lane.index]
        if lane.clock.get(self._lane, 0) >= self._count:
            self._indices.append(index)

    @override
    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None:
        if rank == self.rank and clock.get(self._lane, 0) >= self._count:
            self.end = min(self.end, index)

    def until(self, end: int) -> frozenset[int]:
        """Return the record and the work ordered after it, before a position."""
        return frozenset(index for index in self._indices if index < end)


def inversions(
    found: Race | EarlyFree, traces: Traces, semantics: Semantics = "stream"
) -> Iterator[Inversion]:
    """Yield orders in which a pair without an order runs the other way round."""
    first = found.first_index if isinstance(found, Race) else found.use_index
    after = ordered_after(found.rank, first, traces, semantics)
    trace = traces[found.rank]
    if isinstance(found, EarlyFree):
        until, storage = found.free_index, found.freed.storage
        yield Inversion(found.rank, after.until(until), frozenset(), until, storage)
        return
    yield from _of_two_collectives(found, traces, semantics)
    # The position after the second use, and after the wait for a collective.
    waits = _end(found.second, trace)
    for until in (found.second_index + 1, *waits):
        if until <= after.end:
            late, alone = after.until(until), frozenset({first})
            yield Inversion(found.rank, late - alone, alone, until)
            yield Inversion(found.rank, late, frozenset(), until)


def _end(use: MemoryUse, trace: Trace) -> Iterator[int]:
    """Yield the position after the first wait for a use, if that is a collective."""
    if isinstance(use, CollectiveLaunch):
        for index, record in enumerate(trace):
            if isinstance(record, CollectiveWait) and record.key == use.key:
                yield index + 1
                return


def _of_two_collectives(
    race: Race, traces: Traces, semantics: Semantics
) -> Iterator[Inversion]:
    """Yield the order in which the second collective writes its results last."""
    first, second = race.first, race.second
    if isinstance(first, CollectiveLaunch) and isinstance(second, CollectiveLaunch):
        after = ordered_after(race.rank, race.second_index, traces, semantics)
        alone = frozenset({race.second_index})
        for until in _end(first, traces[race.rank]):
            if until <= after.end:
                yield Inversion(race.rank, after.until(until) - alone, alone, until)


def ordered_after(
    rank: int, index: int, traces: Traces, semantics: Semantics = "stream"
) -> After:
    """Return the work that a rank queued later and that happens after the record at `index`."""
    after = After(rank, index)
    walk(traces, semantics, after)
    return after
