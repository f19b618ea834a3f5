"""Shrink a violation: by Hypothesis, then by leaving things out, then its schedule.

All limits are numbers of runs, not seconds, so equal seeds give equal reports on a fast and
on a slow machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from hypothesis import Phase

from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.search.budget import OutOfBudgetError, is_hang
from syncverify.search.drawing import Drawing, EndedError, ReproducedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Draw, Identity, Judge, JudgedRun
from syncverify.search.occurrences import Occurrences
from syncverify.search.result import Progress, scenario_size
from syncverify.search.scenario_parts import parts_of
from syncverify.search.simpler_scenarios import simpler_scenarios

_MAX_SHRINK_RUNS = 300
_MAX_SIMPLER_RUNS = 100
_MAX_PARTS = 60
# Reasons why a scenario stays as it was met.
TOO_LONG: Final = "each run that hangs takes seconds"
OTHER_HANG: Final = "a part of it hangs in another way"
OUT_OF_TIME: Final = "the time limit came first"
_DETERMINISM = subject_is_deterministic.__name__


def shrink(
    drawing: Drawing,
    judge: Judge,
    identity: Identity,
    first: FoundViolation,
    progress: Progress,
    met: Occurrences | None = None,
) -> FoundViolation:
    """Return the smallest violation of an identity, as far as the budget allows.

    Among scenarios of equal size it is the one that Hypothesis tried last, simplified
    further. `drawing` is the sequence in which the violation `first` was met; the cache of
    the judge that met it spares most of the sequence. `met` receives violations that are
    first met now.
    """
    judge.budget.num_slow_runs = 0
    others = Occurrences() if met is None else met
    shrinking = _Shrinking(drawing, judge, identity, progress, judge.num_runs, others)
    if is_hang(identity[1], judge.backend.name):
        return shrinking.from_below(first)
    simplest = shrinking.with_fewer_things(shrinking.by_hypothesis(first))
    if simplest.decisions:
        with contextlib.suppress(OutOfBudgetError):
            simplest = simplify_schedule(judge, simplest, identity)
    if judge.budget.is_out_of_time:
        return replace(simplest, not_shrunk=OUT_OF_TIME)
    return replace(simplest, is_smallest=True)


def simplify_schedule(
    judge: Judge, found: FoundViolation, identity: Identity
) -> FoundViolation:
    """Undo choices of a schedule that the violation does not need.

    Returns:
        The violation with a schedule in which no single choice can go back to the default,
        as far as the budget allows.

    Raises:
        OutOfBudgetError: Not even the given schedule may be played.
    """
    scenario = found.scenario
    best = judge.judge_schedule(scenario, found.schedule)
    index = len(best.schedule.choices)
    with contextlib.suppress(OutOfBudgetError):
        while index > 0:
            index -= 1
            choices = best.schedule.choices
            # A shorter run may have taken fewer decisions than the schedule before.
            if index >= len(choices) or not choices[index]:
                continue
            without = Schedule((*choices[:index], 0, *choices[index + 1 :]))
            judged = judge.judge_schedule(scenario, without)
            if identity in judged.violations:
                best, index = judged, len(judged.schedule.choices)
    return best.violations[identity]


def leave_things_out(
    capabilities: Capabilities,
    judge: Judge,
    found: FoundViolation,
    *,
    max_runs: int,
    keeps: Callable[[Scenario], bool],
) -> FoundViolation:
    """Leave out one thing of a scenario after the other, as long as the violation stays.

    Args:
        capabilities: Contract of the scenarios.
        judge: Judge of the scenarios.
        found: The violation.
        max_runs: Largest number of runs.
        keeps: Tells whether a simpler scenario still has its point.

    Returns:
        The violation with the simplest scenario.
    """
    identity, best = found.violation.identity, found
    judge.budget.runs_left = max_runs
    with contextlib.suppress(OutOfBudgetError):
        candidates = simpler_scenarios(best.scenario, capabilities)
        while (scenario := next(candidates, None)) is not None:
            if not keeps(scenario):
                continue
            judged = judge.judge_schedule(scenario, best.schedule)
            if identity in judged.violations:
                best = judged.violations[identity]
                candidates = simpler_scenarios(best.scenario, capabilities)
    return best


def tells_much(found: FoundViolation) -> bool:
    """Tell whether a violation leaves one reading, and shows the harm.

    Returns:
        False for a value that follows from several mistakes, as on two ranks or with two
        elements, and for a race on one rank, where a collective does nothing.
    """
    violation = found.violation
    is_lone = violation.unordered is not None and found.scenario.mesh.num_ranks == 1
    return not (is_lone or violation.evidence.readings)


def _rank(found: FoundViolation) -> tuple[bool, tuple[int, ...]]:
    """Return the key by which the violation to show is the least."""
    return not tells_much(found), scenario_size(found.scenario)


@dataclass(frozen=True, slots=True)
class _Shrinking:
    """The shrinking of one violation; its identity stays.

    The violation was met in the sequence `drawing`. `num_runs_before` is the number of runs
    that the judge had made before, and `met` receives violations that are first met now.
    """

    drawing: Drawing
    judge: Judge
    identity: Identity
    progress: Progress
    num_runs_before: int
    met: Occurrences

    def by_hypothesis(self, first: FoundViolation) -> FoundViolation:
        """Let Hypothesis meet the violation again in its sequence, and shrink its choices."""
        least = first
        self.judge.budget.runs_left = _MAX_SHRINK_RUNS

        def probe(scenario: Scenario, draw: Draw) -> None:
            nonlocal least
            num_runs = self.judge.num_runs
            try:
                judged = self.judge.judge_scenario(scenario, draw, twice=self._twice)
            except OutOfBudgetError:
                raise EndedError from None
            self._tell_progress(num_runs)
            self.met.note_while_shrinking(judged.violations, self.identity)
            if self.identity in judged.violations:
                found = judged.violations[self.identity]
                # Hypothesis prefers few and small choices, a reader few ranks and axes.
                least = min(found, least, key=_rank)
                raise ReproducedError

        self.drawing.for_each(probe, Phase.generate, Phase.shrink)
        return least

    def from_below(self, first: FoundViolation) -> FoundViolation:
        """Play parts of the scenario, the smallest first, until one hangs.

        Those before it cost little, and it is the only one that takes seconds.

        Returns:
            The violation in the smallest part that hangs; `first` with the reason where no
            part was found.
        """
        self.judge.budget.runs_left = _MAX_PARTS
        with contextlib.suppress(OutOfBudgetError):
            for scenario in parts_of(first.scenario, self.drawing.capabilities):
                num_hangs = self.judge.budget.num_hangs
                judged = self._judge_schedule(scenario, DEFAULT_SCHEDULE)
                if self.identity in judged.violations:
                    return replace(judged.violations[self.identity], is_smallest=True)
                if self.judge.budget.num_hangs > num_hangs:
                    return replace(first, not_shrunk=OTHER_HANG)
            return replace(first, is_smallest=True)
        return replace(first, not_shrunk=TOO_LONG)

    def with_fewer_things(self, found: FoundViolation) -> FoundViolation:
        """Leave out one thing after the other, as long as the violation stays."""
        self.judge.budget.runs_left = _MAX_SIMPLER_RUNS
        with contextlib.suppress(OutOfBudgetError):
            while (less := self._with_one_thing_less(found)) is not None:
                found = less
        return found

    def _with_one_thing_less(self, found: FoundViolation) -> FoundViolation | None:
        capabilities = self.drawing.capabilities
        for scenario in simpler_scenarios(found.scenario, capabilities):
            judged = self._judge_schedule(scenario, found.schedule)
            simpler = judged.violations.get(self.identity)
            if simpler is not None and tells_much(simpler) >= tells_much(found):
                return simpler
        return None

    def _judge_schedule(self, scenario: Scenario, schedule: Schedule) -> JudgedRun:
        num_runs = self.judge.num_runs
        judged = self.judge.judge_schedule(scenario, schedule, twice=self._twice)
        self._tell_progress(num_runs)
        self.met.note_while_shrinking(judged.violations, self.identity)
        return judged

    @property
    def _twice(self) -> bool:
        """Tell whether the violation needs two runs to show."""
        return self.identity[0] == _DETERMINISM

    def _tell_progress(self, num_runs: int) -> None:
        """Report each run that the judge made since it had made `num_runs`."""
        for number in range(num_runs, self.judge.num_runs):
            self.progress.shrinking(self.identity, number + 1 - self.num_runs_before)
