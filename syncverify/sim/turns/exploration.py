"""Explore the schedules of a small program: one run of each class of interleavings.

Runs that differ only in the order of commuting turns form one class, and one run of the
class is enough. At each point of choice, a source set names the ranks that have to run
first in some run, so that every class is reached. A sleep set names the ranks that need not
run first there, because earlier runs have covered every class that starts with them.

Source: Abdulla, Aronis, Jonsson, Sagonas, "Optimal Dynamic Partial Order Reduction"
(POPL 2014), algorithm 1. Deviation: no wakeup trees, so some runs prove to be redundant
only while they are played.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from syncverify.sim.turns.decisions import Decisions, PollAnswer, TurnPoint
from syncverify.sim.turns.turn_log import (
    Order,
    SharedAccess,
    Turn,
    independent,
    order_of,
)


@dataclass(slots=True)
class _RankChoice:
    """A point of the run at which a rank was chosen."""

    enabled: tuple[int, ...]  # ranks that could take the turn, the default one first
    # Sleep set: ranks that need not take the turn here, each with the accesses of its next turn.
    # Earlier runs have covered every run that follows.
    asleep: dict[int, set[SharedAccess]]
    chosen: int  # rank that takes the turn in the present run
    wanted: set[int]  # source set: ranks that have to take the turn here in some run
    # Of the chosen rank's turn, in all runs so far.
    accesses: set[SharedAccess] = field(default_factory=set)

    def advance(self) -> bool:
        """Choose the next rank of the source set; return False if none is left."""
        # All runs that start with the chosen rank are done: it sleeps in later ones.
        self.asleep[self.chosen] = self.accesses
        left = [r for r in self.enabled if r in self.wanted and r not in self.asleep]
        if left:
            self.chosen, self.accesses = left[0], set()
        return bool(left)


@dataclass(slots=True)
class _AnswerChoice:
    """A point at which an answer was chosen; all answers are played."""

    num_options: int
    chosen: int = 0

    def advance(self) -> bool:
        self.chosen += 1
        return self.chosen < self.num_options


class Exploration:
    """Depth-first search over the schedules of one program, one run of each class.

    Play the program to its end with each of `runs()` before asking for the next. The
    program has to be the same every time and to end by itself: a run that fails on the way
    leaves later choices unexplored.
    """

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._path: list[_RankChoice | _AnswerChoice] = []
        self.num_classes = 0  # played so far
        # Runs in these classes, all together; None if too many to count.
        self.num_interleavings: int | None = 0
        self.num_redundant = 0  # runs that proved to be of a class played before
        self.is_complete = False  # every class has been played

    @property
    def num_runs(self) -> int:
        """Count the runs so far."""
        return self.num_classes + self.num_redundant

    def runs(self) -> Iterator[Decisions]:
        """Yield the decisions of each run, until every class was played."""
        while not self.is_complete:
            guide = _Guide(self._path)
            decisions = guide.decisions = Decisions(guide)
            yield decisions
            guide.finish_turn()
            order = order_of(guide.useful_turns(), self._num_ranks)
            self._count(guide, order)
            self._want_reversals(order)
            # Backtrack to the deepest point with a choice left; forget the points below it.
            while self._path and not self._path[-1].advance():
                self._path.pop()
            self.is_complete = not self._path

    def _count(self, guide: "_Guide", order: Order) -> None:
        if guide.is_redundant:
            self.num_redundant += 1
            return
        self.num_classes += 1
        counted = order.num_interleavings()
        if self.num_interleavings is not None:
            total = self.num_interleavings
            self.num_interleavings = None if counted is None else total + counted

    def _want_reversals(self, order: Order) -> None:
        """For each race, add a rank to the source set that leads to the other order."""
        choices = [point for point in self._path if isinstance(point, _RankChoice)]
        for first, second in order.races:
            choice = choices[first]
            initials = _initials(order, first, second)
            # One rank of `initials` at the point before the race is enough; if the source
            # set has one already, an earlier or later run covers the other order.
            useful = [rank for rank in choice.enabled if rank in initials]
            if useful and not choice.wanted & initials:
                choice.wanted.add(useful[0])


def _initials(order: Order, first: int, second: int) -> set[int]:
    """Return the ranks that could start the turns which do not depend on turn `first`.

    The last turn that counts is `second`, the racing partner of `first`.
    """
    later = [k for k in range(first + 1, second) if not order.precedes(first, k)]
    later.append(second)
    initials: dict[int, bool] = {}
    for place, move in enumerate(later):
        rank = order.turns[move].rank
        if rank not in initials:
            initials[rank] = not any(order.precedes(k, move) for k in later[:place])
    return {rank for rank, is_initial in initials.items() if is_initial}


class _Guide:
    """The policy of one run: follows the path so far, then extends it by new choices."""

    is_done = False
    # A long delay differs from a short one only for a host that gives up.
    num_answers = PollAnswer.NOT_YET + 1
    decisions: Decisions

    def __init__(self, path: list[_RankChoice | _AnswerChoice]) -> None:
        self._path = path
        self._position = 0
        self._choice: _RankChoice | None = None
        self._num_useful: int | None = None

    @property
    def is_redundant(self) -> bool:
        """Tell whether earlier runs have covered every end of this run."""
        return self._num_useful is not None

    def useful_turns(self) -> list[Turn]:
        """Return the turns up to the point at which the run became redundant."""
        return self.decisions.turn_log[: self._num_useful]

    def choose_rank(self, point: TurnPoint) -> int:
        self.finish_turn()
        if self.is_redundant:
            return point.eligible[0]
        if self._position == len(self._path):
            asleep = self._still_asleep()
            awake = [rank for rank in point.eligible if rank not in asleep]
            if not awake:  # all that can go on sleep: the class was played before
                self._num_useful = len(self.decisions.turn_log)
                return point.eligible[0]
            self._path.append(_RankChoice(point.eligible, asleep, awake[0], {awake[0]}))
        choice = self._path[self._position]
        assert isinstance(choice, _RankChoice)
        self._position += 1
        self._choice = choice
        return choice.chosen

    def choose_answer(self, num_options: int) -> int:
        if self.is_redundant:
            return 0
        if self._position == len(self._path):
            self._path.append(_AnswerChoice(num_options))
        answer = self._path[self._position]
        assert isinstance(answer, _AnswerChoice)
        self._position += 1
        return answer.chosen

    def finish_turn(self) -> None:
        """Note the accesses of the turn that has just ended."""
        if self._choice is not None and not self.is_redundant:
            self._choice.accesses.update(self.decisions.turn_log[-1].accesses)

    def _still_asleep(self) -> dict[int, set[SharedAccess]]:
        if self._choice is None:
            return {}
        # A sleeping rank wakes up once a turn conflicts with its next one: the order of the
        # two is new.
        turn = self.decisions.turn_log[-1]
        return {
            rank: accesses
            for rank, accesses in self._choice.asleep.items()
            if rank != turn.rank
            and not turn.is_last_resort
            and independent(accesses, turn.accesses)
        }
