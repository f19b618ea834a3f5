"""Search for violations: draw scenarios, judge them, shrink the failing ones.

Note [Two passes over one random sequence]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The first pass plays every scenario and notes the identity (property and cause) of each
violation (Note [One defect, one violation] in `occurrences.py`). It shrinks nothing, so its coverage depends on the seed and not on the defects.
The second pass runs once per identity that counts: the same seed leads to the same scenario again, and
Hypothesis shrinks it as long as that identity stays. Other violations of a scenario do not
count then, so two defects do not turn into one.

The judge caches each judged run by scenario and schedule, so the second pass plays only new
scenarios. Two runs of one scenario are played on purpose: for each scenario that is larger
than all before it, and for each violation in the end. They show a subject that depends on
chance.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import islice

from hypothesis import Phase

from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.space import Space
from syncverify.search.budget import (
    AFTER_A_HANG,
    Budget,
    OutOfBudgetError,
    is_hang,
)
from syncverify.search.drawing import Drawing, EndedError, ScenarioSequence
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Draw, Identity, Judge, JudgedRun
from syncverify.search.line_probe import played_lines
from syncverify.search.missing_values import (
    num_reserved,
    scenarios_of_missing_values,
)
from syncverify.search.occurrences import Occurrences, join_complements
from syncverify.search.result import Progress, SearchResult, StatisticsCollector
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.shrinking import shrink
from syncverify.settings import Settings
from syncverify.subjects.subject import Subject

_BACKENDS_OF_ONE_PROCESS = ("sim", "fake")
_DETERMINISM = subject_is_deterministic.__name__
# An order that comes from chance is the same in half of the second plays of two buckets.
_MIN_PLAYS = 6


def search(
    subject: Subject,
    backend: Backend,
    settings: Settings,
    progress: Progress,
    known: Collection[Identity] = (),
) -> SearchResult:
    """Search for violations of a subject on a backend.

    Violations in `known` are not shrunk: an earlier run has shrunk them.

    Returns:
        The coverage, the statistics, and the shrunk violations. `progress` receives each
        scenario and each run for shrinking.
    """
    started = time.monotonic()
    limit = settings.time_limit_seconds
    budget = Budget(deadline=None if limit is None else started + limit)
    choice = ScheduleChoice.parse(settings.schedules)
    judge = Judge(subject, backend, choice, settings.random_seed, budget)
    drawing = Drawing.of(subject.capabilities, settings)
    collector = judge.listener = StatisticsCollector()
    has_ranks_here = backend.name in _BACKENDS_OF_ONE_PROCESS
    exploration = _Exploration(drawing, judge, settings, progress)
    with played_lines(subject.factory if has_ranks_here else None) as lines:
        judge_each_scenario(drawing, judge, exploration.take)
    coverage, met = exploration.coverage, exploration.met
    stopped = judge.budget.stopped
    judge.listener = None  # shrinking plays variants of few scenarios over and over
    join_complements(judge, met)
    violations = list[FoundViolation]()
    counting = [*met.told()][: 1 if settings.stop_at_first else None]
    # One more hang ends all shrinking.
    for identity in sorted(counting, key=lambda one: is_hang(one[1], backend.name)):
        if identity not in known:
            first = met.own[identity]
            least = shrink(drawing, judge, identity, first, progress, met)
            violations.append(least)
            progress.shrunk(least)
    for by_chance in _violations_by_chance(judge, violations):
        progress.found(by_chance)
        progress.shrunk(by_chance)
        violations.append(by_chance)
        met.add({by_chance.violation.identity: by_chance})
    return SearchResult(
        coverage.num_scenarios,
        time.monotonic() - started,
        coverage,
        violations,
        replace(collector.statistics(), lines=lines),
        met,
        # A hang while a scenario is made small is one too many for features beyond.
        stopped or (AFTER_A_HANG if judge.budget.num_hangs else ""),
    )


def judge_each_scenario(
    drawing: ScenarioSequence, judge: Judge, take: Callable[[Scenario, JudgedRun], None]
) -> None:
    """Judge the scenarios of a sequence, until the budget ends.

    Some are played twice. `take` receives each scenario and its judged run, and may raise
    `EndedError`.
    """
    second_plays = _SecondPlays()

    def explore(scenario: Scenario, draw: Draw) -> None:
        try:
            judged = judge.judge_scenario(scenario, draw)
            size = judged.launches_per_step, scenario.mesh.num_ranks
            # Violations are played twice after the search.
            if not judged.violations and second_plays.includes(*size):
                judged = judge.judge_schedule(scenario, DEFAULT_SCHEDULE, twice=True)
        except OutOfBudgetError:
            raise EndedError from None
        take(scenario, judged)
        if judge.budget.stopped:  # Note [After a hang] in `budget.py`
            raise EndedError

    drawing.for_each(explore, Phase.generate)


class _Exploration:
    """Takes each scenario that was judged: its features, its violations.

    Attributes:
        coverage: Features of the scenarios.
        met: Their violations.
    """

    def __init__(
        self, drawing: Drawing, judge: Judge, settings: Settings, progress: Progress
    ) -> None:
        self.coverage = Coverage(Space(drawing.capabilities, drawing.max_ranks))
        self.met = Occurrences()
        self._judge = judge
        self._settings = settings
        self._progress = progress
        self._reserved = num_reserved(settings.examples)

    def take(self, scenario: Scenario, judged: JudgedRun) -> None:
        """Note a scenario; raise `EndedError` after the last one."""
        self.coverage.add(scenario, judged.applied)
        new = self.met.add(judged.violations)
        is_enough = self._settings.stop_at_first
        for entry in new[: 1 if is_enough else None]:
            self._progress.found(entry)
        num_played, wanted = self.coverage.num_scenarios, self._settings.examples
        self._progress.played(num_played, len(self.met.own))
        if self.met.own and is_enough:
            raise EndedError
        if num_played == wanted - self._reserved:
            self._play_missing()
        if self.coverage.num_scenarios >= wanted:
            raise EndedError

    def _play_missing(self) -> None:
        """Play scenarios with values that no scenario had."""
        missing = scenarios_of_missing_values(self.coverage, self._settings.random_seed)
        for scenario in islice(missing, self._reserved):
            if self._judge.budget.stopped:
                raise EndedError
            try:
                judged = self._judge.judge_schedule(scenario, DEFAULT_SCHEDULE)
            except OutOfBudgetError:
                raise EndedError from None
            self.take(scenario, judged)


class _SecondPlays:
    """Chooses runs to play twice: the largest so far, and the first with an order."""

    def __init__(self) -> None:
        self._largest = 0
        self._num_ordered = 0

    def includes(self, launches_per_step: int, num_ranks: int) -> bool:
        """Return whether to play a scenario without violations again."""
        is_largest = launches_per_step * num_ranks > self._largest
        has_order = launches_per_step > 1 and self._num_ordered < _MIN_PLAYS
        self._largest = max(self._largest, launches_per_step * num_ranks)
        self._num_ordered += has_order
        return is_largest or has_order


def _violations_by_chance(
    judge: Judge, violations: list[FoundViolation]
) -> list[FoundViolation]:
    """Play each violation twice; return the first whose second run differs, if any."""
    if any(entry.violation.property == _DETERMINISM for entry in violations):
        return []
    for entry in violations:
        if is_hang(entry.violation.cause, judge.backend.name):
            continue
        judge.budget.num_slow_runs, judge.budget.runs_left = 0, 2
        with contextlib.suppress(OutOfBudgetError):
            judged = judge.judge_schedule(entry.scenario, entry.schedule, twice=True)
            for (name, _), violation in judged.violations.items():
                if name == _DETERMINISM:
                    return [violation]
    return []
