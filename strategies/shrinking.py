"""Make a violation smaller: first by Hypothesis, then by what can be left out.

Bounds are counts of runs, not seconds: the same seed gives the same report.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from hypothesis import Phase

from strategies.drawing import Draw, Drawing, EndedError, ReproducedError
from strategies.judge import Identity, Judge, OutOfBudgetError, Verdict
from strategies.search_result import Found, Progress, bulk, found_in
from strategies.simpler import simpler
from syncverify.properties.determinism import subject_is_deterministic
from syncverify.scenario import Scenario

_MAX_SHRINK_RUNS = 300
_MAX_SIMPLER_RUNS = 100
_DETERMINISM = subject_is_deterministic.__name__


def shrink(
    drawing: Drawing,
    judge: Judge,
    identity: Identity,
    first: Found,
    progress: Progress,
) -> Found:
    """Make a violation smaller, as far as runs are left for that.

    Args:
        drawing: The sequence of scenarios that led to it.
        judge: Who judged them.
        identity: Of the violation.
        first: Where it was met.
        progress: Told how it goes on.

    Returns:
        The least that Hypothesis has tried, its last word among equals, without what can
        be left out of that.
    """
    judge.num_slow_runs = 0
    shrinking = _Shrinking(drawing, judge, identity, progress, judge.num_runs)
    simplest = shrinking.simplest(shrinking.least(first))
    if not simplest.decisions:
        return simplest
    with contextlib.suppress(OutOfBudgetError):
        verdict = judge.simplified(simplest.scenario, simplest.schedule, identity)
        return found_in(simplest.scenario, verdict, identity)
    return simplest


@dataclass(frozen=True, slots=True)
class _Shrinking:
    """What it takes to shrink one violation.

    Attributes:
        drawing: The sequence of scenarios that led to it.
        judge: Who judges them.
        identity: Of the violation, which stays.
        progress: Told how it goes on.
        num_runs_before: Runs that the judge had made before.
    """

    drawing: Drawing
    judge: Judge
    identity: Identity
    progress: Progress
    num_runs_before: int

    def least(self, first: Found) -> Found:
        """Have Hypothesis shrink its choices; the sequence leads to the violation again."""
        least = first
        self.judge.runs_left = _MAX_SHRINK_RUNS

        def probe(scenario: Scenario, draw: Draw) -> None:
            nonlocal least
            runs = self.judge.num_runs
            try:
                verdict = self.judge.verdict(scenario, draw, twice=self._twice)
            except OutOfBudgetError:
                raise EndedError from None
            self._told(runs)
            if self.identity in verdict.violations:
                found = found_in(scenario, verdict, self.identity)
                least = min(found, least, key=lambda found: bulk(found.scenario))
                raise ReproducedError

        self.drawing.for_each(probe, Phase.generate, Phase.shrink)
        return least

    def simplest(self, found: Found) -> Found:
        """Leave out whatever is not needed, one thing after the other."""
        self.judge.runs_left = _MAX_SIMPLER_RUNS
        with contextlib.suppress(OutOfBudgetError):
            while (less := self._simpler(found)) is not None:
                found = less
        return found

    def _simpler(self, found: Found) -> Found | None:
        for scenario in simpler(found.scenario, self.drawing.capabilities):
            verdict = self._followed(scenario, found)
            if self.identity in verdict.violations:
                return found_in(scenario, verdict, self.identity)
        return None

    def _followed(self, scenario: Scenario, found: Found) -> Verdict:
        runs = self.judge.num_runs
        verdict = self.judge.followed(scenario, found.schedule, twice=self._twice)
        self._told(runs)
        return verdict

    @property
    def _twice(self) -> bool:
        return self.identity[0] == _DETERMINISM

    def _told(self, num_runs: int) -> None:
        """Tell of each run since there were so many."""
        for number in range(num_runs, self.judge.num_runs):
            self.progress.shrinking(self.identity, number + 1 - self.num_runs_before)
