"""Play every schedule of a small program, one of each class.

Runs that differ only in the order of moves that commute are one class, and one run stands
for all of them. Source sets say which rank has to go first somewhere to meet every class,
and sleep sets which need not be tried again.

Source: Abdulla, Aronis, Jonsson, Sagonas, "Optimal Dynamic Partial Order Reduction"
(POPL 2014), algorithm 1; without its wakeup trees, so that some runs are found to be
redundant only while they are played.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from syncverify.sim.decisions import Decisions, TurnPoint
from syncverify.sim.moves import Move, Order, Touch, independent, order_of


@dataclass(slots=True)
class _Turn:
    """A point of the run at which a rank was chosen.

    Attributes:
        enabled: The ranks that could move, the default one first.
        asleep: Ranks that need not move here, and what their next move touches: all that
            can follow was played elsewhere.
        chosen: Who moves in the present run.
        wanted: Who has to be tried here.
        touches: What the chosen rank's move touched, in all runs so far.
    """

    enabled: tuple[int, ...]
    asleep: dict[int, set[Touch]]
    chosen: int
    wanted: set[int]
    touches: set[Touch] = field(default_factory=set)

    def advance(self) -> bool:
        """Try the next rank, if there is one left to try."""
        self.asleep[self.chosen] = self.touches
        left = [r for r in self.enabled if r in self.wanted and r not in self.asleep]
        if left:
            self.chosen, self.touches = left[0], set()
        return bool(left)


@dataclass(slots=True)
class _Answer:
    """A point at which something else than a rank was chosen."""

    num_options: int
    chosen: int = 0

    def advance(self) -> bool:
        self.chosen += 1
        return self.chosen < self.num_options


class Exploration:
    """Leads runs of one program through all classes of its schedules.

    Play the program with each of `runs()`, to its end, before asking for the next. It
    has to be the same program every time, and end by itself: one that fails on the way
    leaves the rest unexplored.

    Args:
        num_ranks: Number of ranks.

    Attributes:
        num_classes: Classes played so far.
        num_interleavings: Runs that these classes stand for; None if too many to count.
        num_redundant: Runs that turned out to be of a class played before.
        is_complete: Whether every class has been played.
    """

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._path: list[_Turn | _Answer] = []
        self.num_classes = 0
        self.num_interleavings: int | None = 0
        self.num_redundant = 0
        self.is_complete = False

    @property
    def num_runs(self) -> int:
        """Count the runs so far."""
        return self.num_classes + self.num_redundant

    def runs(self) -> Iterator[Decisions]:
        """Yield the decisions of one run after the other, until all classes were played."""
        while not self.is_complete:
            guide = _Guide(self._path)
            decisions = guide.decisions = Decisions(guide)
            yield decisions
            guide.finish_move()
            order = order_of(guide.useful_moves(), self._num_ranks)
            self._count(guide, order)
            self._want_reversals(order)
            while self._path and not self._path[-1].advance():
                self._path.pop()
            self.is_complete = not self._path

    def _count(self, guide: _Guide, order: Order) -> None:
        if guide.is_redundant:
            self.num_redundant += 1
            return
        self.num_classes += 1
        counted = order.num_interleavings()
        if self.num_interleavings is not None:
            total = self.num_interleavings
            self.num_interleavings = None if counted is None else total + counted

    def _want_reversals(self, order: Order) -> None:
        """For each race, want a rank that leads to the other outcome."""
        turns = [point for point in self._path if isinstance(point, _Turn)]
        for first, second in order.races:
            turn = turns[first]
            initials = _initials(order, first, second)
            useful = [rank for rank in turn.enabled if rank in initials]
            if useful and not turn.wanted & initials:
                turn.wanted.add(useful[0])


def _initials(order: Order, first: int, second: int) -> set[int]:
    """Find who could go first in what does not need a move, up to its racing partner."""
    later = [k for k in range(first + 1, second) if not order.precedes(first, k)]
    later.append(second)
    initials: dict[int, bool] = {}
    for place, move in enumerate(later):
        rank = order.moves[move].rank
        if rank not in initials:
            initials[rank] = not any(order.precedes(k, move) for k in later[:place])
    return {rank for rank, is_initial in initials.items() if is_initial}


class _Guide:
    """Follows the path of an exploration, then goes on from its end."""

    is_done = False
    decisions: Decisions

    def __init__(self, path: list[_Turn | _Answer]) -> None:
        self._path = path
        self._position = 0
        self._turn: _Turn | None = None
        self._num_useful: int | None = None

    @property
    def is_redundant(self) -> bool:
        """Tell whether all that the run could still lead to was played before."""
        return self._num_useful is not None

    def useful_moves(self) -> list[Move]:
        """Return the moves up to where the run became redundant."""
        return self.decisions.moves[: self._num_useful]

    def choose_rank(self, point: TurnPoint) -> int:
        self.finish_move()
        if self.is_redundant:
            return point.impatient[0]
        if self._position == len(self._path):
            asleep = self._still_asleep()
            awake = [rank for rank in point.impatient if rank not in asleep]
            if not awake:
                self._num_useful = len(self.decisions.moves)
                return point.impatient[0]
            self._path.append(_Turn(point.impatient, asleep, awake[0], {awake[0]}))
        turn = self._path[self._position]
        assert isinstance(turn, _Turn)
        self._position += 1
        self._turn = turn
        return turn.chosen

    def choose_answer(self, num_options: int) -> int:
        if self.is_redundant:
            return 0
        if self._position == len(self._path):
            self._path.append(_Answer(num_options))
        answer = self._path[self._position]
        assert isinstance(answer, _Answer)
        self._position += 1
        return answer.chosen

    def finish_move(self) -> None:
        """Note what the move touched that has just been made."""
        if self._turn is not None and not self.is_redundant:
            self._turn.touches.update(self.decisions.moves[-1].touches)

    def _still_asleep(self) -> dict[int, set[Touch]]:
        if self._turn is None:
            return {}
        move = self.decisions.moves[-1]
        return {
            rank: touches
            for rank, touches in self._turn.asleep.items()
            if rank != move.rank
            and not move.is_last_resort
            and independent(touches, move.touches)
        }
