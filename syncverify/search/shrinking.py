"""Shrink a violation: by Hypothesis, then by leaving things out, then its schedule.

All limits are numbers of runs, not seconds, so equal seeds give equal reports on a fast and
on a slow machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hypothesis import Phase

from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.progress import Progress
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.scenario.size import size_of
from syncverify.search.budget import OUT_OF_TIME, Budget, OutOfBudgetError, is_hang
from syncverify.search.drawing import Drawing, EndedError, ReproducedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Draw, Identity, Judge
from syncverify.search.occurrences import Occurrences
from syncverify.search.scenario_parts import parts_of
from syncverify.search.simpler_scenarios import simpler_scenarios

_MAX_SHRINK_RUNS = 300
_MAX_SIMPLER_RUNS = 100
_MAX_PARTS = 60
# Beside `OUT_OF_TIME`, reasons why a scenario stays as it was met.
TOO_LONG: Final = "each run that hangs takes seconds"
OTHER_HANG: Final = "a part of it hangs in another way"
_DETERMINISM = subject_is_deterministic.__name__


def shrink(
    drawing: Drawing,
    judge: Judge,
    identity: Identity,
    first: FoundViolation,
    progress: Progress[FoundViolation],
    met: Occurrences | None = None,
    draws: Mapping[bytes, int] | None = None,
) -> FoundViolation:
    """Return the smallest violation of an identity, as far as the budget allows.

    Among scenarios of equal size it is the one that Hypothesis tried last, simplified
    further. `drawing` is the sequence in which the violation `first` was met; the cache of
    the judge that met it spares most of the sequence. Another judge spares it by `draws`: see
    Note [A sequence without its runs]. `met` receives violations that are first met now.
    """
    judge.budget.num_slow_runs = 0
    others = Occurrences() if met is None else met
    shrinking = _Shrinker(
        judge=judge,
        identity=identity,
        progress=progress,
        num_runs_before=judge.num_runs,
        met=others,
        least=first,
        draws=draws,
    )
    if is_hang(identity[1], judge.backend.name):
        return shrinking.from_below(drawing.capabilities)
    judge.budget.runs_left = _MAX_SHRINK_RUNS
    drawing.for_each(shrinking.probe, Phase.generate, Phase.shrink)
    simplest = leave_things_out(
        drawing.capabilities,
        judge.budget,
        shrinking.least,
        lambda scenario, best: min(
            shrinking.shown(scenario, best.schedule) or best, best, key=rank_of
        ),
        max_runs=_MAX_SIMPLER_RUNS,
    )
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
    budget: Budget,
    found: FoundViolation,
    better: Callable[[Scenario, FoundViolation], FoundViolation],
    *,
    max_runs: int,
) -> FoundViolation:
    """Leave out one thing of a scenario after the other, as long as the violation stays.

    Args:
        capabilities: Contract of the scenarios.
        budget: Limits on the runs.
        found: The violation.
        better: Takes a simpler scenario and the violation in the simplest one until now;
            returns the one of the two that is to be shown.
        max_runs: Largest number of runs.

    Returns:
        The violation with the simplest scenario.
    """
    best, budget.runs_left = found, max_runs
    with contextlib.suppress(OutOfBudgetError):
        candidates = simpler_scenarios(best.scenario, capabilities)
        while (scenario := next(candidates, None)) is not None:
            simpler = better(scenario, best)
            if simpler is not best:
                best = simpler
                candidates = simpler_scenarios(best.scenario, capabilities)
    return best


def rank_of(found: FoundViolation) -> tuple[bool, tuple[int, ...]]:
    """Return the key by which the violation to show is the least.

    Returns:
        Whether it tells little, then the size of its scenario: a reader prefers few ranks and
        axes. A value that follows from several mistakes tells little, as on two ranks or with
        two elements, and a race on one rank, where a collective does nothing.
    """
    violation, scenario = found.violation, found.scenario
    is_lone = violation.evidence.unordered is not None and scenario.mesh.num_ranks == 1
    return is_lone or bool(violation.evidence.readings), size_of(scenario)


@dataclass(slots=True)
class _Shrinker:
    """The shrinking of one violation; its identity stays.

    Attributes:
        identity: Property and cause of the violation.
        progress: Receives each run.
        num_runs_before: Number of runs that the judge had made before.
        met: Receives violations that are first met now.
        least: The violation to show until now.
        draws: Number of decisions of each schedule that was drawn, by the digest of the
            scenario; None where each scenario is judged.
    """

    judge: Judge
    identity: Identity
    progress: Progress[FoundViolation]
    num_runs_before: int
    met: Occurrences
    least: FoundViolation
    draws: Mapping[bytes, int] | None = None

    def probe(self, scenario: Scenario, draw: Draw) -> None:
        """Tell Hypothesis whether a scenario of its sequence shows the violation."""
        if self.draws is not None and self._is_before_the_violation(
            scenario, draw, self.draws
        ):
            return
        try:
            found = self.shown(scenario, draw)
        except OutOfBudgetError:
            raise EndedError from None
        if found is not None:
            # Hypothesis prefers few and small choices.
            self.least = min(found, self.least, key=rank_of)
            raise ReproducedError

    def _is_before_the_violation(
        self, scenario: Scenario, draw: Draw, draws: Mapping[bytes, int]
    ) -> bool:
        """Tell whether a scenario needs no run, and draw what its run has drawn."""
        # Note [A sequence without its runs]
        # The scenarios before a violation did not show it, so they need no run. But Hypothesis
        # has one source of chance for scenarios and schedules: a schedule that was drawn then
        # is drawn now, or the next scenario is another one.
        digest = scenario.digest()
        if digest == self.least.scenario.digest():
            self.draws = None
            return False
        if digest in draws:
            draw(draws[digest])
        return True

    def from_below(self, capabilities: Capabilities) -> FoundViolation:
        """Play parts of the scenario, the smallest first, until one hangs.

        Those before it cost little, and it is the only one that takes seconds.

        Returns:
            The violation in the smallest part that hangs, or in the whole scenario where all
            parts hold; as it was met, with the reason, where the search of parts ended early.
        """
        first, budget = self.least, self.judge.budget
        budget.runs_left = _MAX_PARTS
        with contextlib.suppress(OutOfBudgetError):
            for scenario in parts_of(first.scenario, capabilities):
                num_hangs = budget.num_hangs
                found = self.shown(scenario, DEFAULT_SCHEDULE)
                if found is not None:
                    return replace(found, is_smallest=True)
                if budget.num_hangs > num_hangs:
                    return replace(first, not_shrunk=OTHER_HANG)
            return replace(first, is_smallest=True)
        return replace(first, not_shrunk=TOO_LONG)

    def shown(
        self, scenario: Scenario, schedule: Schedule | Draw
    ) -> FoundViolation | None:
        """Judge a scenario, and report each run; return the violation if it shows."""
        judge, is_of_chance = self.judge, self.identity[0] == _DETERMINISM
        num_runs = judge.num_runs
        if isinstance(schedule, Schedule):
            judged = judge.judge_schedule(scenario, schedule, twice=is_of_chance)
        else:
            judged = judge.judge_scenario(scenario, schedule, twice=is_of_chance)
        for number in range(num_runs, judge.num_runs):
            self.progress.shrinking(self.identity, number + 1 - self.num_runs_before)
        self.met.note_while_shrinking(judged.violations, self.identity)
        return judged.violations.get(self.identity)
