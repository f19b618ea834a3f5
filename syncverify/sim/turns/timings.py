"""The timings that a program is played with after the first one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from syncverify.scenario.schedule import (
    COMPLETE,
    RANDOM,
    ScheduleChoice,
    ScheduleCoverage,
)
from syncverify.sim.turns.decisions import Decisions
from syncverify.sim.turns.exploration import Exploration
from syncverify.sim.turns.pct import PriorityRuns
from syncverify.sim.turns.turn_log import order_matters


def may_differ(first: Decisions, num_ranks: int) -> bool:
    """Tell whether a program may behave in another way than it did in its first run."""
    return first.met_question or order_matters(first.turn_log, num_ranks)


@dataclass(slots=True)
class OtherTimings:
    """Decisions of further runs: one run of each class of interleavings, or random ones.

    Random ones take over where there are too many classes.

    Attributes:
        choice: Which timings to play.
        num_turns: Turns of the first run, all ranks together.
        seed: Seed of random timings.
        coverage: The part of all timings that was played; None before the last was.
    """

    choice: ScheduleChoice
    num_ranks: int
    num_turns: int
    seed: int
    coverage: ScheduleCoverage | None = None

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
