"""Probabilistic concurrency testing: schedules by random priorities.

Each rank gets a random priority, and the one with the highest moves. At `depth - 1`
random moves, the rank that is about to move falls behind all others. Most ordering bugs
need few moves in a particular order: with `n` ranks and `k` moves, one run meets a bug
that needs `depth` of them with a probability of at least 1 / (n k^(depth - 1)).

Answers to hosts that ask are drawn evenly; a bug that also needs `a` answers is met with
that probability divided by 2^a.

Source: Burckhardt, Kothari, Musuvathi, Nagarakatte, "A Randomized Scheduler with
Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from syncverify.sim.decisions import Decisions, TurnPoint

DEFAULT_DEPTH = 3


@dataclass(frozen=True, slots=True)
class PriorityRuns:
    """Random runs of one program, and what they promise.

    Attributes:
        num_ranks: Number of ranks.
        num_moves: Moves of one run, all ranks together.
        depth: Moves whose order a bug needs, so that the promise holds for it.
    """

    num_ranks: int
    num_moves: int
    depth: int = DEFAULT_DEPTH

    def runs(self, num_runs: int, random_seed: int) -> Iterator[Decisions]:
        """Yield the decisions of one run after the other; same seed, same runs."""
        random_numbers = random.Random(random_seed)
        for _ in range(num_runs):
            yield Decisions(_Priorities(self, random_numbers))

    def probability(self, num_runs: int) -> float:
        """Return the least probability that some of the runs meets such a bug."""
        moves = max(self.num_moves, 1)
        missed = 1 - 1 / (self.num_ranks * moves ** (self.depth - 1))
        return 1 - float(missed**num_runs)


class _Priorities:
    is_done = False

    def __init__(self, bounds: PriorityRuns, random_numbers: random.Random) -> None:
        self._random = random_numbers
        # Higher than any that a change point gives, which are 1 to depth - 1.
        initial = range(bounds.depth, bounds.depth + bounds.num_ranks)
        self._priority = random_numbers.sample(initial, bounds.num_ranks)
        places = range(max(bounds.num_moves, bounds.depth - 1))
        changes = random_numbers.sample(places, bounds.depth - 1)
        self._lowered = {place: n + 1 for n, place in enumerate(changes)}
        self._num_moves = 0

    def choose_rank(self, point: TurnPoint) -> int:
        lowered = self._lowered.get(self._num_moves)
        if lowered is not None:
            self._priority[self._highest(point)] = lowered
        self._num_moves += 1
        return self._highest(point)

    def choose_answer(self, num_options: int) -> int:
        return self._random.randrange(num_options)

    def _highest(self, point: TurnPoint) -> int:
        return max(point.impatient, key=lambda rank: self._priority[rank])
