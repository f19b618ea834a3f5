"""Search for violations: draw scenarios, judge them, shrink the failing ones.

Note [Two passes over one random sequence]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The first pass plays every scenario and notes the identity (property and cause) of each
violation (Note [One defect, one violation] in `occurrences.py`). It shrinks nothing, so its
coverage depends on the seed and not on the defects. The second pass runs once per identity that
counts: the same seed leads to the same scenario again, and Hypothesis shrinks it as long as that
identity stays. Other violations of a scenario do not count then, so two defects do not turn
into one.

The judge caches each judged run by scenario and schedule, so the second pass plays only new
scenarios. Some scenarios are played twice on purpose, which shows a subject that depends on
chance: each scenario that is larger than all before it, the first few with several launches a
step, and the scenarios of violations in the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from hypothesis import Phase

from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.progress import Progress
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule, ScheduleChoice
from syncverify.scenario.settings import Settings
from syncverify.scenario.space import Space
from syncverify.search.budget import (
    AFTER_A_HANG,
    BACKENDS_OF_ONE_PROCESS,
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
from syncverify.search.result import SearchResult, StatisticsCollector
from syncverify.search.shrinking import shrink
from syncverify.subjects.subject import Subject

_DETERMINISM = subject_is_deterministic.__name__
# An order that comes from chance is the same in half of the second plays of two buckets.
_MIN_PLAYS = 6


class PlaceMet(NamedTuple):
    """The sequence in which a violation was met.

    Attributes:
        drawing: The sequence.
        draws: Number of decisions of each schedule that was drawn there, by the digest of the
            scenario; None where the judge has these runs in its cache.
    """

    drawing: Drawing
    draws: Mapping[bytes, int] | None = None


# The place of the first violation of each identity.
PlacesMet = dict[Identity, PlaceMet]


def search(
    subject: Subject,
    backend: Backend,
    settings: Settings,
    progress: Progress[FoundViolation],
    known: Collection[Identity] = (),
    elsewhere: Callable[[], tuple[SearchResult, PlacesMet]] | None = None,
) -> SearchResult:
    """Search for violations of a subject on a backend.

    Args:
        subject: The synchronizer.
        backend: Backend that plays the scenarios.
        settings: Settings of the search.
        progress: Receives each scenario and each run for shrinking.
        known: Identities of violations that an earlier run has shrunk.
        elsewhere: Explores in shards, in place of this function; None for a search without.

    Returns:
        The coverage, the statistics, and the shrunk violations.
    """
    started = time.monotonic()
    judge = _judge_of(subject, backend, settings, started)
    whole = PlaceMet(Drawing.of(subject.capabilities, settings))
    if elsewhere is None:
        result = explore(judge, whole.drawing, settings, progress)
        places = dict.fromkeys(result.met.own, whole)
    else:
        result, places = elsewhere()
    met, violations = result.met, result.violations
    join_complements(judge, met)
    counting = [*met.reported()][: 1 if settings.stop_at_first else None]
    # One more hang ends all shrinking.
    for identity in sorted(counting, key=lambda one: is_hang(one[1], backend.name)):
        if identity not in known:
            first = met.own[identity]
            drawing, draws = places[identity]
            least = shrink(
                drawing,
                judge,
                identity=identity,
                first=first,
                progress=progress,
                met=met,
                draws=draws,
            )
            violations.append(least)
            progress.shrunk(least)
    # A second run of each shows a subject that depends on chance; one such violation is enough.
    chance = [each for each in violations if each.violation.property == _DETERMINISM]
    for entry in [
        each for each in violations if not is_hang(each.violation.cause, backend.name)
    ]:
        judge.budget.num_slow_runs, judge.budget.runs_left = 0, 2
        with contextlib.suppress(OutOfBudgetError):
            if not chance:
                again = judge.judge_schedule(entry.scenario, entry.schedule, twice=True)
                found = again.violations.items()
                chance = [each for (name, _), each in found if name == _DETERMINISM][:1]
                for each in chance:
                    progress.found(each)
                    progress.shrunk(each)
                    violations.append(each)
                    met.add({each.violation.identity: each})
    # A hang while a scenario is made small is one too many for features beyond.
    hung = AFTER_A_HANG if judge.budget.num_hangs else ""
    result.stopped = result.stopped or hung
    result.seconds = time.monotonic() - started
    return result


def _judge_of(
    subject: Subject, backend: Backend, settings: Settings, started: float
) -> Judge:
    limit = settings.time_limit_seconds
    budget = Budget(deadline=None if limit is None else started + limit)
    choice = ScheduleChoice.parse(settings.schedules)
    return Judge(subject, backend, choice, settings.random_seed, budget)


def explore(
    judge: Judge,
    scenarios: ScenarioSequence,
    settings: Settings,
    progress: Progress[FoundViolation],
) -> SearchResult:
    """Play all scenarios of a sequence, with others for missing values, and shrink nothing.

    Args:
        judge: Judge of the subject; its cache spares the shrinker these runs.
        scenarios: The sequence.
        settings: Settings of the search, or of a part of it.
        progress: Receives each scenario and each violation.

    Returns:
        The coverage, the statistics, and the violations as they were met.
    """
    started, subject = time.monotonic(), judge.subject
    collector = judge.listener = StatisticsCollector()
    has_ranks_here = judge.backend.name in BACKENDS_OF_ONE_PROCESS
    coverage = Coverage(Space(subject.capabilities, settings.ranks))
    exploration = _Exploration(coverage, judge, settings, progress)
    with played_lines(subject.factory if has_ranks_here else None) as lines:
        draws = judge_each_scenario(scenarios, judge, exploration.take)
    judge.listener = None  # shrinking plays variants of few scenarios over and over
    return SearchResult(
        num_examples=coverage.num_scenarios,
        seconds=time.monotonic() - started,
        coverage=coverage,
        violations=[],
        statistics=replace(collector.statistics(), lines=lines),
        met=exploration.met,
        stopped=judge.budget.stopped,
        draws=draws if exploration.met.own else {},
    )


def judge_each_scenario(
    drawing: ScenarioSequence, judge: Judge, take: Callable[[Scenario, JudgedRun], None]
) -> dict[bytes, int]:
    """Judge the scenarios of a sequence, until the budget ends.

    Some are played twice. `take` receives each scenario and its judged run, and may raise
    `EndedError`.

    Returns:
        The number of decisions of each schedule that was drawn, by the digest of the scenario.
    """
    second_plays, draws = _SecondPlays(), dict[bytes, int]()

    def explore(scenario: Scenario, draw: Draw) -> None:
        def noted(count: int) -> Schedule:
            draws[scenario.digest()] = count
            return draw(count)

        try:
            judged = judge.judge_scenario(scenario, noted)
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
    return draws


class _Exploration:
    """Takes each scenario that was judged: its features, its violations.

    Attributes:
        coverage: Features of the scenarios.
        met: Their violations.
    """

    def __init__(
        self,
        coverage: Coverage,
        judge: Judge,
        settings: Settings,
        progress: Progress[FoundViolation],
    ) -> None:
        self.coverage = coverage
        self.met = Occurrences()
        self._judge = judge
        self._settings = settings
        self._progress = progress
        is_listed = settings.exhaustive
        self._reserved = 0 if is_listed else num_reserved(settings.examples)

    def take(self, scenario: Scenario, judged: JudgedRun) -> None:
        """Note a scenario; raise `EndedError` after the last one."""
        self.coverage.add(scenario, judged.applied, judged.ended_in)
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
    """Chooses runs to play twice: the largest so far, and the first few with an order."""

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
