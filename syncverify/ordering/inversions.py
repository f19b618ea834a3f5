"""For what is not ordered, legal orders in which the later one runs first.

What a host queued first may run last. Then all that is ordered after it runs late, too,
and everything else goes on: that is an order which the streams allow, since nothing that
must wait for the late work is left out of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from syncverify.memory import MemoryRegion
from syncverify.ordering.clocks import Clock, Lane
from syncverify.ordering.happens_before import Semantics, Traces, walk
from syncverify.ordering.races import EarlyFree, Race
from syncverify.trace import (
    CollectiveLaunch,
    CollectiveWait,
    Event,
    StorageFreed,
)


@dataclass(frozen=True, slots=True)
class Inversion:
    """An order in which some work of a rank runs late. Positions are of its trace.

    Attributes:
        rank: Whose work.
        late: What runs late, from its start.
        late_results: What starts in time, and writes its results late.
        until: Position before which all other work runs first.
        overwritten: Storage that has other contents by then; None if there is none.
    """

    rank: int
    late: frozenset[int]
    late_results: frozenset[int]
    until: int
    overwritten: int | None = None


def inversions(
    found: Race | EarlyFree, traces: Traces, semantics: Semantics = "stream"
) -> Iterator[Inversion]:
    """Yield orders that turn round what is not ordered.

    Args:
        found: What is not ordered, by positions in these traces.
        traces: Events of each rank, in host order.
        semantics: What orders queued work.
    """
    first = found.first_index if isinstance(found, Race) else found.use_index
    after = ordered_after(found.rank, first, traces, semantics)
    events = traces[found.rank]
    if isinstance(found, EarlyFree):
        until, storage = found.free_index, found.freed.storage
        yield Inversion(found.rank, after.until(until), frozenset(), until, storage)
        return
    yield from _of_two_collectives(found, traces, semantics)
    for until in _ends(found, events):
        if until <= after.end:
            late, alone = after.until(until), frozenset({first})
            yield Inversion(found.rank, late - alone, alone, until)
            yield Inversion(found.rank, late, frozenset(), until)


def _ends(race: Race, events: Sequence[Event]) -> Iterator[int]:
    """Yield where the second use has begun, and where a collective has ended."""
    yield race.second_index + 1
    if isinstance(race.second, CollectiveLaunch):
        yield from _end(race.second, events)


def _end(launch: CollectiveLaunch, events: Sequence[Event]) -> Iterator[int]:
    """Yield the position after the first wait for a collective, if there is one."""
    for index, event in enumerate(events):
        if isinstance(event, CollectiveWait) and event.place == launch.place:
            yield index + 1
            return


def _of_two_collectives(
    race: Race, traces: Traces, semantics: Semantics
) -> Iterator[Inversion]:
    """Yield the order in which the second one ends after the first one's results."""
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
    """Find what is ordered after an event.

    Args:
        rank: Whose event.
        index: Its position.
        traces: Events of each rank, in host order.
        semantics: What orders queued work.

    Returns:
        What the rank queued after it that must run after it.
    """
    after = After(rank, index)
    walk(traces, semantics, after)
    return after


@dataclass(slots=True)
class After:
    """An observer that notes what is ordered after one event of a rank.

    Attributes:
        rank: The rank.
        first: Position of the event.
        end: Position at which the host has waited for it, so that it is not late any
            more.
    """

    rank: int
    first: int
    end: float = math.inf
    _lane: int = -1
    _count: float = math.inf  # until the event comes, which nothing before it contains
    _indices: list[int] = field(default_factory=list)

    def queued(
        self,
        index: int,
        lane: Lane,
        reads: tuple[MemoryRegion, ...],
        writes: tuple[MemoryRegion, ...],
    ) -> None:
        """Compare with the event."""
        if lane.rank != self.rank:
            return
        if index == self.first:
            self._lane, self._count = lane.index, lane.clock[lane.index]
        clock: Clock = lane.clock
        if clock.get(self._lane, 0) >= self._count:
            self._indices.append(index)

    def freed(self, index: int, lane: Lane, event: StorageFreed) -> None:
        """Free memory whenever the host says so."""

    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None:
        """Note when the host can have seen what the event did."""
        if rank == self.rank and clock.get(self._lane, 0) >= self._count:
            self.end = min(self.end, index)

    def until(self, end: int) -> frozenset[int]:
        """Return the event and what is ordered after it, up to a position."""
        return frozenset(index for index in self._indices if index < end)
