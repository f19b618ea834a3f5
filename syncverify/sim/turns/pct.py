"""Probabilistic concurrency testing: schedules by random priorities.

Each rank gets a random priority, and the rank with the highest one takes the next turn. At
`depth - 1` random turns, the rank that is about to run gets a priority below all first ones.
Most ordering bugs need few turns in a particular order: with `n` ranks and `k` turns, one
run meets a bug that needs `depth` turns in order with a probability of at least
1 / (n k^(depth - 1)).

Answers to hosts that ask are drawn evenly. A bug that also needs `a` particular answers is
met with that probability divided by 3^a.

Source: Burckhardt, Kothari, Musuvathi, Nagarakatte, "A Randomized Scheduler with
Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from syncverify.sim.turns.decisions import Decisions, PollAnswer, TurnPoint

DEFAULT_DEPTH = 3


@dataclass(frozen=True, slots=True)
class PriorityRuns:
    """Random runs of one program, and their probability to meet a bug.

    Attributes:
        num_turns: Turns of a run, all ranks together.
        depth: Number of turns in order that a bug needs, for the probability.
    """

    num_ranks: int
    num_turns: int
    depth: int = DEFAULT_DEPTH

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
