"""What ranks do between two points at which another could go first, and in which order.

A run is a sequence of moves. A move starts where the turn can change hands (before a rank
touches what ranks share, and where it waits) and ends before the next such point, so it
touches shared things in one piece. Moves of different ranks that share nothing commute:
runs that differ only in the order of such moves are one and the same run to everybody,
a *class* of interleavings (Mazurkiewicz). What is left of the order is happens-before,
kept here as one vector clock a move.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

_MAX_CUTS = 100_000


class Access(Enum):
    """How a move touches a shared thing."""

    READ = auto()  # as it is
    AWAIT = auto()  # not before it is there
    WRITE = auto()
    CREATE = auto()  # writes what was not there, so that who awaits it can go on
    ARRIVE = auto()  # adds its part, once; it is there when all have added theirs


_READS = {Access.READ, Access.AWAIT}


@dataclass(frozen=True, slots=True)
class Touch:
    """A shared thing that a move touches.

    Attributes:
        thing: Its name; the same in every run of a program.
        access: How.
    """

    thing: str
    access: Access


@dataclass(slots=True)
class Move:
    """What one rank does in one piece.

    Attributes:
        rank: The rank.
        touches: What it shares with others.
        is_last_resort: Whether the rank only got to it because no other could move.
    """

    rank: int
    touches: list[Touch] = field(default_factory=list)
    is_last_resort: bool = False


def conflict(first: Touch, second: Touch) -> bool:
    """Tell whether the order of two touches can matter."""
    kinds = {first.access, second.access}
    return (
        first.thing == second.thing and not kinds <= _READS and kinds != {Access.ARRIVE}
    )


def independent(first: Iterable[Touch], second: Collection[Touch]) -> bool:
    """Tell whether two moves of different ranks commute."""
    return not any(conflict(a, b) for a in first for b in second)


@dataclass(frozen=True, slots=True)
class Order:
    """Happens-before of a run.

    Attributes:
        moves: The moves, in the order they were made.
        clocks: For each move, how many moves of each rank happen before its end.
        races: Pairs of moves, by index, that touch the same thing one right after the
            other and could have come the other way round.
    """

    moves: Sequence[Move]
    clocks: list[list[int]]
    races: list[tuple[int, int]]
    _ordinals: list[int]

    def precedes(self, first: int, second: int) -> bool:
        """Tell whether a move happens before another, or is it."""
        rank = self.moves[first].rank
        return self.clocks[second][rank] > self._ordinals[first]

    def num_interleavings(self) -> int | None:
        """Count the runs of the same class; None if that would take too long."""
        by_rank: dict[int, list[list[int]]] = defaultdict(list)
        for move, clock in zip(self.moves, self.clocks, strict=True):
            by_rank[move.rank].append(clock)
        num_ranks = len(self.clocks[0]) if self.clocks else 0
        cuts = {(0,) * num_ranks: 1}
        for _ in self.moves:
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


def order_of(moves: Sequence[Move], num_ranks: int) -> Order:
    """Find out what happens before what.

    Args:
        moves: Of a run, in the order they were made.
        num_ranks: Number of ranks.

    Returns:
        The order, with its races.
    """
    order = Order(moves, [], [], [])
    latest = [[0] * num_ranks for _ in range(num_ranks)]
    history: dict[str, list[tuple[int, Touch]]] = defaultdict(list)
    for index, move in enumerate(moves):
        clock = list(latest[move.rank])
        for earlier, touches in _conflicting(index, moves, history):
            before = moves[earlier]
            if clock[before.rank] > order._ordinals[earlier]:  # noqa: SLF001
                continue  # something in between orders them already
            if touches and all(_could_swap(*pair) for pair in touches):
                order.races.append((earlier, index))
            clock = [
                max(a, b) for a, b in zip(clock, order.clocks[earlier], strict=True)
            ]
        order._ordinals.append(clock[move.rank])  # noqa: SLF001
        clock[move.rank] += 1
        order.clocks.append(clock)
        latest[move.rank] = clock
        for touch in move.touches:
            history[touch.thing].append((index, touch))
    return order


def _conflicting(
    index: int, moves: Sequence[Move], history: dict[str, list[tuple[int, Touch]]]
) -> Iterator[tuple[int, list[tuple[Touch, Touch]]]]:
    """Yield earlier moves of others that do not commute with one, the latest first."""
    move = moves[index]
    found: dict[int, list[tuple[Touch, Touch]]] = defaultdict(list)
    for touch in move.touches:
        for earlier, other in history[touch.thing]:
            if moves[earlier].rank != move.rank and conflict(other, touch):
                found[earlier].append((other, touch))
    if move.is_last_resort:  # it had to come after all that others could do
        found = {
            n: [] for n, other in enumerate(moves[:index]) if other.rank != move.rank
        }
    yield from sorted(found.items(), reverse=True)


def _could_swap(first: Touch, second: Touch) -> bool:
    """Tell whether the second could have come first, had its rank been faster."""
    enabling = first.access in {Access.CREATE, Access.ARRIVE}
    return not (enabling and second.access is Access.AWAIT)


def order_matters(moves: Sequence[Move], num_ranks: int) -> bool:
    """Tell whether ranks could have come in another order that somebody notices.

    Args:
        moves: Of a run, in the order they were made.
        num_ranks: Number of ranks.

    Returns:
        False where every order of the ranks is this very run to everybody.
    """
    kinds: dict[str, Counter[Access]] = defaultdict(Counter)
    for touch in (touch for move in moves for touch in move.touches):
        kinds[touch.thing][touch.access] += 1
    # Mostly things are made once, or together, and awaited: no need to look closer.
    return any(map(_may_race, kinds.values())) and bool(
        order_of(moves, num_ranks).races
    )


def _may_race(accesses: Counter[Access]) -> bool:
    made = accesses[Access.CREATE] + min(accesses[Access.ARRIVE], 1)
    return made > 1 or bool(accesses[Access.READ] or accesses[Access.WRITE])
