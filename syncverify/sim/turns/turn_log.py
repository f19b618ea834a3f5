"""The turns of ranks, their accesses to shared resources, and happens-before between them.

A run is a sequence of turns. A turn starts where the scheduler can choose another rank:
before a rank accesses a shared resource, and where a rank waits. It ends before the next
such point, so its accesses to shared resources are one atomic block.

Turns of different ranks commute if no resource is shared. Runs that differ only in the
order of commuting turns give every rank the same results. They form one *class* of
interleavings (Mazurkiewicz). The order that remains within a class is happens-before, kept
here as one vector clock a turn.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

_MAX_CUTS = 100_000


class AccessKind(Enum):
    """The ways to access a shared resource."""

    READ = auto()  # takes the present value
    AWAIT = auto()  # cannot come before the resource exists
    WRITE = auto()
    CREATE = auto()  # first write: ranks that await the resource can go on
    # Adds one rank's part; the resource exists once all parts are there.
    ARRIVE = auto()


_READS = {AccessKind.READ, AccessKind.AWAIT}


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """One access to a shared resource."""

    resource: str  # its name, the same in every run of a program
    access: AccessKind


@dataclass(slots=True)
class Turn:
    """One turn of a rank: the operations between two points of choice."""

    rank: int
    accesses: list[SharedAccess] = field(default_factory=list)  # in order
    is_last_resort: bool = False  # no other rank could run


def conflict(first: SharedAccess, second: SharedAccess) -> bool:
    """Tell whether the order of two accesses can matter."""
    kinds = {first.access, second.access}
    return (
        first.resource == second.resource
        and not kinds <= _READS
        and kinds != {AccessKind.ARRIVE}
    )


def independent(
    first: Iterable[SharedAccess], second: Collection[SharedAccess]
) -> bool:
    """Tell whether two turns of different ranks commute."""
    return not any(conflict(a, b) for a in first for b in second)


@dataclass(frozen=True, slots=True)
class Order:
    """Happens-before of a run."""

    turns: Sequence[Turn]  # in the order of the run
    # For each turn, the number of turns of each rank that happen before its end.
    clocks: list[list[int]]
    # Pairs of turns, by index, that access one resource with no ordering turn in between, and
    # that could have come in the other order.
    races: list[tuple[int, int]]
    _ordinals: list[int]

    def precedes(self, first: int, second: int) -> bool:
        """Tell whether the first turn happens before the second, or is the same turn."""
        rank = self.turns[first].rank
        return self.clocks[second][rank] > self._ordinals[first]

    def num_interleavings(self) -> int | None:
        """Count the runs of the same class; None if there are too many cuts to count."""
        by_rank: dict[int, list[list[int]]] = defaultdict(list)
        for turn, clock in zip(self.turns, self.clocks, strict=True):
            by_rank[turn.rank].append(clock)
        num_ranks = len(self.clocks[0]) if self.clocks else 0
        cuts = {(0,) * num_ranks: 1}
        for _ in self.turns:
            later: dict[tuple[int, ...], int] = defaultdict(int)
            for cut, count in cuts.items():
                for following in _next_cuts(cut, by_rank):
                    later[following] += count
            if len(later) > _MAX_CUTS:
                return None
            cuts = later
        return sum(cuts.values())


def _next_cuts(
    cut: tuple[int, ...], by_rank: dict[int, list[list[int]]]
) -> Iterator[tuple[int, ...]]:
    for rank, clocks in by_rank.items():
        if cut[rank] == len(clocks):
            continue
        following = (*cut[:rank], cut[rank] + 1, *cut[rank + 1 :])
        if all(a <= b for a, b in zip(clocks[cut[rank]], following, strict=True)):
            yield following


def order_of(turns: Sequence[Turn], num_ranks: int) -> Order:
    """Return happens-before of a run, with its races."""
    order = Order(turns, [], [], [])
    latest = [[0] * num_ranks for _ in range(num_ranks)]
    history: dict[str, list[tuple[int, SharedAccess]]] = defaultdict(list)
    for index, turn in enumerate(turns):
        clock = list(latest[turn.rank])
        for earlier, accesses in _conflicting(index, turns, history):
            before = turns[earlier]
            if clock[before.rank] > order._ordinals[earlier]:  # noqa: SLF001
                continue  # a turn in between orders the two already: no race
            if accesses and all(_could_swap(*pair) for pair in accesses):
                order.races.append((earlier, index))
            clock = [
                max(a, b) for a, b in zip(clock, order.clocks[earlier], strict=True)
            ]
        order._ordinals.append(clock[turn.rank])  # noqa: SLF001
        clock[turn.rank] += 1
        order.clocks.append(clock)
        latest[turn.rank] = clock
        for shared in turn.accesses:
            history[shared.resource].append((index, shared))
    return order


def _conflicting(
    index: int,
    turns: Sequence[Turn],
    history: dict[str, list[tuple[int, SharedAccess]]],
) -> Iterator[tuple[int, list[tuple[SharedAccess, SharedAccess]]]]:
    """Yield the earlier turns of other ranks that do not commute with a turn, latest first."""
    turn = turns[index]
    found: dict[int, list[tuple[SharedAccess, SharedAccess]]] = defaultdict(list)
    for shared in turn.accesses:
        for earlier, other in history[shared.resource]:
            if turns[earlier].rank != turn.rank and conflict(other, shared):
                found[earlier].append((other, shared))
    if turn.is_last_resort:  # no other rank could run, so all turns so far come before
        found = {
            n: [] for n, other in enumerate(turns[:index]) if other.rank != turn.rank
        }
    yield from sorted(found.items(), reverse=True)


def _could_swap(first: SharedAccess, second: SharedAccess) -> bool:
    """Tell whether the second access could have come first, with a faster rank."""
    # An awaiting rank cannot run before the resource exists: that order is no race.
    enabling = first.access in {AccessKind.CREATE, AccessKind.ARRIVE}
    return not (enabling and second.access is AccessKind.AWAIT)


def order_matters(turns: Sequence[Turn], num_ranks: int) -> bool:
    """Return whether another order of the turns could give some rank other results.

    False if the run is the only one of its program, up to the order of turns that commute.
    """
    kinds: dict[str, Counter[AccessKind]] = defaultdict(Counter)
    for shared in (shared for turn in turns for shared in turn.accesses):
        kinds[shared.resource][shared.access] += 1
    # Most resources are created once, or by arrivals alone, and then awaited. No order of
    # those accesses can differ, so the vector clocks are not needed.
    return any(map(_may_race, kinds.values())) and bool(
        order_of(turns, num_ranks).races
    )


def _may_race(accesses: Counter[AccessKind]) -> bool:
    made = accesses[AccessKind.CREATE] + min(accesses[AccessKind.ARRIVE], 1)
    return made > 1 or bool(accesses[AccessKind.READ] or accesses[AccessKind.WRITE])
