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
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Draw, Identity, Judge, JudgedRun
from syncverify.search.line_probe import played_lines
from syncverify.search.missing_values import (
    num_reserved,
    scenarios_of_missing_values,
)
from syncverify.search.occurrences import Occurrences, join_complements
from syncverify.search.result import Progress, SearchResult
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.second_plays import SecondPlays
from syncverify.search.shrinking import shrink
from syncverify.search.statistics import StatisticsCollector
from syncverify.settings import Settings
from syncverify.subjects.subject import Subject

_BACKENDS_OF_ONE_PROCESS = ("sim", "fake")
_DETERMINISM = subject_is_deterministic.__name__


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
    with played_lines(subject.factory if has_ranks_here else None) as lines:
        coverage, met = _explore(drawing, judge, settings, progress)
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
    drawing: Drawing, judge: Judge, take: Callable[[Scenario, JudgedRun], None]
) -> None:
    """Judge the scenarios of a sequence, until the budget ends.

    Some are played twice. `take` receives each scenario and its judged run, and may raise
    `EndedError`.
    """
    second_plays = SecondPlays()

    def explore(scenario: Scenario, draw: Draw) -> None:
        try:
            judged = judge.judge_scenario(scenario, draw)
            if second_plays.includes(scenario, judged):
                judged = judge.judge_schedule(scenario, DEFAULT_SCHEDULE, twice=True)
        except OutOfBudgetError:
            raise EndedError from None
        take(scenario, judged)
        if judge.budget.stopped:  # Note [After a hang] in `budget.py`
            raise EndedError

    drawing.for_each(explore, Phase.generate)


def judge_or_end(judge: Judge, scenario: Scenario) -> JudgedRun:
    """Judge a scenario with the default schedule.

    Returns:
        The judged run.

    Raises:
        EndedError: The judge may make no more runs.
    """
    try:
        return judge.judge_schedule(scenario, DEFAULT_SCHEDULE)
    except OutOfBudgetError:
        raise EndedError from None


def _explore(
    drawing: Drawing, judge: Judge, settings: Settings, progress: Progress
) -> tuple[Coverage, Occurrences]:
    """Play the scenarios; return their features and their violations."""
    coverage = Coverage(Space(drawing.capabilities, drawing.max_ranks))
    met = Occurrences()
    reserved = num_reserved(settings.examples)

    def take(scenario: Scenario, judged: JudgedRun) -> None:
        coverage.add(scenario, judged.applied)
        new = met.add(judged.violations)
        for entry in new[: 1 if settings.stop_at_first else None]:
            progress.found(entry)
        progress.played(coverage.num_scenarios, len(met.own))
        if met.own and settings.stop_at_first:
            raise EndedError
        if coverage.num_scenarios == settings.examples - reserved:
            play_missing()
        if coverage.num_scenarios >= settings.examples:
            raise EndedError

    def play_missing() -> None:
        missing = scenarios_of_missing_values(coverage, settings.random_seed)
        for scenario in islice(missing, reserved):
            if judge.budget.stopped:
                raise EndedError
            take(scenario, judge_or_end(judge, scenario))

    judge_each_scenario(drawing, judge, take)
    return coverage, met


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
