"""Play all scenarios of a sequence once, and note what they show. Nothing is shrunk."""

import time
from dataclasses import dataclass, field, replace
from itertools import islice

from hypothesis import Phase

from syncverify.progress import Progress
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.scenario.settings import Settings
from syncverify.scenario.space import Space
from syncverify.search.budget import BACKENDS_OF_ONE_PROCESS, OutOfBudgetError
from syncverify.search.drawing import Drawing, EndedError, Listed
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Draw, Judge, JudgedRun, RunListener
from syncverify.search.line_probe import played_lines
from syncverify.search.missing_values import num_reserved, scenarios_of_missing_values
from syncverify.search.occurrences import Occurrences
from syncverify.search.result import SearchResult, StatisticsCollector

# An order that comes from chance is the same in half of the second plays of two buckets.
_MIN_PLAYS = 6


def explore(
    judge: Judge,
    scenarios: Drawing | Listed,
    settings: Settings,
    progress: Progress[FoundViolation],
) -> SearchResult:
    """Return what all scenarios of a sequence show, with others for missing values.

    The cache of the judge spares the shrinker these runs. `settings` are those of the search, or
    of a part of it.
    """
    started, subject = time.monotonic(), judge.subject
    collector = judge.listener = StatisticsCollector()
    has_ranks_here = judge.backend.name in BACKENDS_OF_ONE_PROCESS
    # All scenarios of a scope are listed.
    reserved = 0 if settings.exhaustive else num_reserved(settings.examples)
    exploration = Exploration(judge, settings, progress, reserved)
    with played_lines(subject.factory if has_ranks_here else None) as lines:
        draws = exploration.play(scenarios)
    judge.listener = RunListener()  # shrinking plays few scenarios over and over
    return SearchResult(
        num_examples=exploration.coverage.num_scenarios,
        seconds=time.monotonic() - started,
        coverage=exploration.coverage,
        violations=[],
        statistics=replace(collector.statistics(), lines=lines),
        met=exploration.met,
        stopped=judge.budget.stopped,
        draws=draws if exploration.met.own else {},
    )


@dataclass
class Exploration:
    """Plays scenarios, and notes the features and violations of each.

    The last `num_reserved` scenarios are those of missing values.
    """

    judge: Judge
    settings: Settings
    progress: Progress[FoundViolation]
    num_reserved: int
    met: Occurrences = field(default_factory=Occurrences)
    _largest: int = 0
    _num_ordered: int = 0

    def __post_init__(self) -> None:
        """Begin with the space of the subject."""
        space = Space(self.judge.subject.capabilities, self.settings.ranks)
        self.coverage = Coverage(space)

    def play(self, scenarios: Drawing | Listed) -> dict[bytes, int]:
        """Play a sequence, some scenarios twice, within the budget; return `SearchResult.draws`."""
        judge, draws = self.judge, dict[bytes, int]()

        def explore_one(scenario: Scenario, draw: Draw) -> None:
            def noted(count: int) -> Schedule:
                draws[scenario.digest()] = count
                return draw(count)

            try:
                judged = judge.judge_scenario(scenario, noted)
                # Violations are played twice after the search.
                if not judged.violations and self._is_played_twice(scenario, judged):
                    judged = judge.judge_schedule(
                        scenario, DEFAULT_SCHEDULE, twice=True
                    )
            except OutOfBudgetError:
                raise EndedError from None
            self._take(scenario, judged)
            if judge.budget.stopped:  # Note [After a hang] in `budget.py`
                raise EndedError

        scenarios.for_each(explore_one, Phase.generate)
        return draws

    def _take(self, scenario: Scenario, judged: JudgedRun) -> None:
        """Note a scenario; raise `EndedError` after the last one."""
        self.coverage.add(scenario, judged.applied, judged.ended_in)
        new = self.met.add(judged.violations)
        is_enough = self.settings.stop_at_first
        for entry in new[: 1 if is_enough else None]:
            self.progress.found(entry)
        num_played, wanted = self.coverage.num_scenarios, self.settings.examples
        self.progress.played(num_played, len(self.met.own))
        if self.met.own and is_enough:
            raise EndedError
        if num_played == wanted - self.num_reserved:
            self._play_missing()
        if self.coverage.num_scenarios >= wanted:
            raise EndedError

    def _is_played_twice(self, scenario: Scenario, judged: JudgedRun) -> bool:
        """Tell whether a run is the largest so far, or one of the first few with an order."""
        launches = judged.launches_per_step
        size = launches * scenario.mesh.num_ranks
        is_largest = size > self._largest
        has_order = launches > 1 and self._num_ordered < _MIN_PLAYS
        self._largest = max(self._largest, size)
        self._num_ordered += has_order
        return is_largest or has_order

    def _play_missing(self) -> None:
        """Play scenarios with values that no scenario had."""
        missing = scenarios_of_missing_values(self.coverage, self.settings.random_seed)
        for scenario in islice(missing, self.num_reserved):
            if self.judge.budget.stopped:
                raise EndedError
            try:
                judged = self.judge.judge_schedule(scenario, DEFAULT_SCHEDULE)
            except OutOfBudgetError:
                raise EndedError from None
            self._take(scenario, judged)
