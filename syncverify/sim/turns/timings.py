"""The timings that a program is played with after the first one.

Random ones are those of probabilistic concurrency testing. Each rank gets a random priority, and the rank with the highest one takes the next turn. At
`depth - 1` random turns, the rank that is about to run gets a priority below all first ones.
Most ordering bugs need few turns in a particular order: with `n` ranks and `k` turns, one
run meets a bug that needs `depth` turns in order with a probability of at least
1 / (n k^(depth - 1)).

Answers to hosts that ask are drawn evenly. A bug that also needs `a` particular answers is
met with that probability divided by 3^a.

Source: Burckhardt, Kothari, Musuvathi, Nagarakatte, "A Randomized Scheduler with
Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from syncverify.scenario.schedule import (
    COMPLETE,
    RANDOM,
    ScheduleChoice,
    ScheduleCoverage,
)
from syncverify.sim.turns.decisions import Decisions, PollAnswer, TurnPoint
from syncverify.sim.turns.exploration import Exploration
from syncverify.sim.turns.turn_log import order_matters

DEFAULT_DEPTH = 3


@dataclass(frozen=True, slots=True)
class PriorityRuns:
    """Random runs of one program, and their probability to meet a bug."""

    num_ranks: int
    num_turns: int  # of a run, all ranks together
    depth: int = DEFAULT_DEPTH  # number of turns in order that a bug needs

    def runs(self, num_runs: int, random_seed: int) -> Iterator[Decisions]:
        """Yield the decisions of each run; same seed, same runs."""
        random_numbers = random.Random(random_seed)
        for _ in range(num_runs):
            yield Decisions(_Priorities(self, random_numbers))

    def probability(self, num_runs: int) -> float:
        """Return the least probability that at least one of the runs meets such a bug."""
        num_turns = max(self.num_turns, 1)
        missed = 1 - 1 / (self.num_ranks * num_turns ** (self.depth - 1))
        return 1 - float(missed**num_runs)


class _Priorities:
    """The policy of one run: the rank with the highest priority takes each turn."""

    is_done = False
    num_answers = PollAnswer.LONG_DELAY + 1

    def __init__(self, bounds: PriorityRuns, random_numbers: random.Random) -> None:
        self._random = random_numbers
        # Above the priorities 1 to depth - 1, which change points give.
        initial = range(bounds.depth, bounds.depth + bounds.num_ranks)
        self._priority = random_numbers.sample(initial, bounds.num_ranks)
        places = range(max(bounds.num_turns, bounds.depth - 1))
        changes = random_numbers.sample(places, bounds.depth - 1)
        self._lowered = {place: n + 1 for n, place in enumerate(changes)}
        self._num_turns = 0

    def choose_rank(self, point: TurnPoint) -> int:
        lowered = self._lowered.get(self._num_turns)
        if lowered is not None:
            self._priority[self._highest(point)] = lowered
        self._num_turns += 1
        return self._highest(point)

    def choose_answer(self, num_options: int) -> int:
        return self._random.randrange(num_options)

    def _highest(self, point: TurnPoint) -> int:
        return max(point.eligible, key=lambda rank: self._priority[rank])


def may_differ(first: Decisions, num_ranks: int) -> bool:
    """Tell whether a program may behave in another way than it did in its first run."""
    return first.met_question or order_matters(first.turn_log, num_ranks)


@dataclass(slots=True)
class OtherTimings:
    """Decisions of further runs: one run of each class of interleavings, or random ones.

    Random ones take over where there are too many classes.
    """

    choice: ScheduleChoice
    num_ranks: int
    num_turns: int  # of the first run, all ranks together
    seed: int  # of random timings
    coverage: ScheduleCoverage | None = None  # None before the last run was played

    def __iter__(self) -> Iterator[Decisions]:
        """Yield the decisions of each run, which is played before the next one is asked for."""
        if self.choice.mode == "all":
            exploration = Exploration(self.num_ranks)
            yield from islice(exploration.runs(), self.choice.max_runs)
            if exploration.is_complete:
                counts = exploration.num_classes, exploration.num_interleavings
                self.coverage = ScheduleCoverage(COMPLETE, *counts)
                return
        priorities = PriorityRuns(self.num_ranks, self.num_turns)
        num_runs = 1 if self.choice.mode == "drawn" else self.choice.max_runs
        yield from priorities.runs(num_runs, self.seed)
        chance = priorities.probability(num_runs)
        self.coverage = ScheduleCoverage(RANDOM, probability=chance)
