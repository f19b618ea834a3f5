"""Shrink a violation: by Hypothesis, then by leaving things out, then its schedule.

All limits are numbers of runs, not seconds, so equal seeds give equal reports on a fast and
on a slow machine.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hypothesis import Phase

from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.progress import Progress
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import size_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.search.budget import OUT_OF_TIME, OutOfBudgetError, is_hang, smallest
from syncverify.search.drawing import Drawing, EndedError, ReproducedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Draw, Judge, JudgedRun
from syncverify.search.occurrences import Occurrences
from syncverify.search.smaller_scenarios import (
    parts_of,
    simpler_scenarios,
    with_one_feature_less,
)

_MAX_SHRINK_RUNS = 300
_MAX_SIMPLER_RUNS = 100
_MAX_FEATURE_RUNS = 60
_MAX_PARTS = 60
# Beside `OUT_OF_TIME`, reasons why a scenario stays as it was met.
TOO_LONG: Final = "each run that hangs takes seconds"
OTHER_HANG: Final = "a part of it hangs in another way"
_DETERMINISM = subject_is_deterministic.__name__


def shrink(
    drawing: Drawing,
    judge: Judge,
    first: FoundViolation,
    progress: Progress[FoundViolation],
    met: Occurrences | None = None,
    draws: Mapping[bytes, int] | None = None,
) -> FoundViolation:
    """Return the smallest violation of the identity of `first`, as far as the budget allows.

    Among scenarios of equal size it is the one that Hypothesis tried last, simplified
    further. `drawing` is the sequence in which the violation `first` was met; the cache of
    the judge that met it spares most of the sequence. Another judge spares it by `draws`: see
    Note [A sequence without its runs]. `met` receives violations that are first met now.
    """
    judge.budget.num_slow_runs = 0
    others = Occurrences() if met is None else met
    shrinking = _Shrinker(judge, progress, judge.num_runs, others, first, draws)
    own = drawing.capabilities
    if is_hang(first.violation.cause, judge.backend.name):
        return shrinking.from_below(own)
    judge.budget.runs_left = _MAX_SHRINK_RUNS
    drawing.for_each(shrinking.probe, Phase.generate, Phase.shrink)
    judge.budget.runs_left = _MAX_SIMPLER_RUNS
    simplest = smallest(
        shrinking.least,
        lambda least: simpler_scenarios(least.scenario, own),
        shrinking.shown_better,
    )
    if simplest.decisions:
        with contextlib.suppress(OutOfBudgetError):
            simplest = simplify_schedule(judge, simplest)
    if judge.budget.is_out_of_time:
        return replace(simplest, not_shrunk=OUT_OF_TIME)
    return replace(simplest, is_smallest=True)


def simplify_schedule(judge: Judge, found: FoundViolation) -> FoundViolation:
    """Return a violation without choices of its schedule that it does not need, as the budget allows.

    Raises:
        OutOfBudgetError: Not even the given schedule may be played.
    """
    scenario, identity = found.scenario, found.violation.identity

    def with_one_choice_less(judged: JudgedRun) -> Iterator[Schedule]:
        choices = judged.schedule.choices
        for index in reversed(range(len(choices))):
            if choices[index]:
                yield Schedule((*choices[:index], 0, *choices[index + 1 :]))

    def shown_in(schedule: Schedule, _: JudgedRun) -> JudgedRun | None:
        judged = judge.judge_schedule(scenario, schedule)
        return judged if identity in judged.violations else None

    first = judge.judge_schedule(scenario, found.schedule)
    return smallest(first, with_one_choice_less, shown_in).violations[identity]


def with_needed_features(judge: Judge, found: FoundViolation) -> FoundViolation:
    """Return a violation of the same identity with fewer features, as few as 60 runs find.

    Shrinking does not count features: a violation that needs two may be reported with seven. So
    they are taken away one at a time, until each one that is left is needed.
    """
    judge.budget.runs_left = _MAX_FEATURE_RUNS
    own = judge.subject.capabilities
    return smallest(
        found, lambda least: with_one_feature_less(least.scenario, own), judge.shown_in
    )


def _rank_of(found: FoundViolation) -> tuple[bool, tuple[int, ...]]:
    """Return the key by which the violation to show is the least.

    The key says whether the violation tells little, then has the size of its scenario: a
    reader prefers few ranks and axes. A value that follows from several mistakes tells little,
    as on two ranks or with two elements, and a race on one rank, where a collective does nothing.
    """
    violation, scenario = found.violation, found.scenario
    is_lone = violation.evidence.unordered is not None and scenario.mesh.num_ranks == 1
    return is_lone or bool(violation.evidence.readings), size_of(scenario)


@dataclass(slots=True)
class _Shrinker:
    """The shrinking of one violation; its identity stays."""

    judge: Judge
    progress: Progress[FoundViolation]
    num_runs_before: int
    met: Occurrences
    least: FoundViolation  # the violation to show until now
    # Number of decisions of each schedule that was drawn, by the digest of the scenario; None
    # where each scenario is judged.
    draws: Mapping[bytes, int] | None

    def probe(self, scenario: Scenario, draw: Draw) -> None:
        """Tell Hypothesis whether a scenario of its sequence shows the violation."""
        # Note [A sequence without its runs]
        # The scenarios before a violation did not show it, so they need no run. But Hypothesis
        # has one source of chance for scenarios and schedules: a schedule that was drawn then
        # is drawn now, or the next scenario is another one.
        if self.draws is not None:
            digest = scenario.digest()
            if digest != self.least.scenario.digest():
                if digest in self.draws:
                    draw(self.draws[digest])
                return
            self.draws = None
        try:
            found = self._shown(scenario, draw)
        except OutOfBudgetError:
            raise EndedError from None
        if found is not None:
            # Hypothesis prefers few and small choices.
            self.least = min(found, self.least, key=_rank_of)
            raise ReproducedError

    def shown_better(
        self, scenario: Scenario, least: FoundViolation
    ) -> FoundViolation | None:
        """Return the violation in a scenario if it shows there, and tells no less."""
        found = self._shown(scenario, least.schedule)
        is_better = found is not None and _rank_of(found) <= _rank_of(least)
        return found if is_better else None

    def from_below(self, capabilities: Capabilities) -> FoundViolation:
        """Return the violation in the smallest part that hangs, the whole scenario at last.

        The parts before it cost little, and it is the only one that takes seconds. Where the search
        of parts ends early, the violation is as it was met, with the reason.
        """
        first, budget = self.least, self.judge.budget
        budget.runs_left = _MAX_PARTS
        with contextlib.suppress(OutOfBudgetError):
            for scenario in parts_of(first.scenario, capabilities):
                num_hangs = budget.num_hangs
                found = self._shown(scenario, DEFAULT_SCHEDULE)
                if found is not None:
                    return replace(found, is_smallest=True)
                if budget.num_hangs > num_hangs:
                    return replace(first, not_shrunk=OTHER_HANG)
            return replace(first, is_smallest=True)
        return replace(first, not_shrunk=TOO_LONG)

    def _shown(
        self, scenario: Scenario, schedule: Schedule | Draw
    ) -> FoundViolation | None:
        """Judge a scenario, and report each run; return the violation if it shows."""
        judge, identity = self.judge, self.least.violation.identity
        num_runs, is_of_chance = judge.num_runs, identity[0] == _DETERMINISM
        if isinstance(schedule, Schedule):
            judged = judge.judge_schedule(scenario, schedule, twice=is_of_chance)
        else:
            judged = judge.judge_scenario(scenario, schedule, twice=is_of_chance)
        for number in range(num_runs, judge.num_runs):
            self.progress.shrinking(identity, number + 1 - self.num_runs_before)
        self.met.note_while_shrinking(judged.violations, identity)
        return judged.violations.get(identity)
