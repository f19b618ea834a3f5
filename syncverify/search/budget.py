"""Limits on the runs of a judge: time, number of runs, number of slow runs.

A time limit ends a search. Numbers of runs end shrinking: they do not depend on the speed of
the machine, so equal seeds give equal reports.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

# A run that ends in a fault on real processes, or in a hang on any backend, takes seconds.
# Three of them are enough to report the fault.
_MAX_SLOW_RUNS = 3


class OutOfBudgetError(Exception):
    """The judge may make no more runs."""


@dataclass(slots=True)
class Budget:
    """Limits on the runs of a judge.

    Attributes:
        deadline: Value of `time.monotonic()` after which no run starts; None for none.
        runs_left: Number of runs that may still start; None for any number.
        num_slow_runs: Runs with a violation that took seconds, since the last reset to 0.
    """

    deadline: float | None = None
    runs_left: int | None = None
    num_slow_runs: int = 0

    def take_run(self) -> None:
        """Take one run out of the budget; raise `OutOfBudgetError` at a limit."""
        if (
            self.runs_left == 0
            or self.num_slow_runs >= _MAX_SLOW_RUNS
            or (self.deadline is not None and time.monotonic() > self.deadline)
        ):
            raise OutOfBudgetError
        if self.runs_left is not None:
            self.runs_left -= 1
