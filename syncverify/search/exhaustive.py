"""Play every scenario of a small scope, with a schedule of each class: a proof within a bound.

The scenarios are played in parts, by one or several processes. A file has the parts that were
played, so an interrupted search goes on where it was.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import torch
from hypothesis import Phase
from typing_extensions import override

from syncverify.backends.choice import open_backend
from syncverify.backends.packed_subject import pack_subject, unpack_subject
from syncverify.errors import UsageError
from syncverify.processes.calls import is_to_stop, run_in_processes
from syncverify.program.warnings_once import show_warnings_once
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.small_scope import SmallScope
from syncverify.scenario.space import Space
from syncverify.scenario.token import decode
from syncverify.search.drawing import EndedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Draw, Identity, Judge, JudgedRun
from syncverify.search.line_probe import played_lines
from syncverify.search.occurrences import Occurrences
from syncverify.search.parallel import (
    JointProgress,
    ScenarioPlayed,
    ToldProgress,
    ViolationMet,
)
from syncverify.search.parts_played import DEFAULT_FOLDER, PartsFile, PartsPlayed
from syncverify.search.replay import Replay, shrink_replayed
from syncverify.search.replayed import judge_again
from syncverify.search.result import (
    Progress,
    SearchResult,
    SilentProgress,
    StatisticsCollector,
    merged,
)
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.search import judge_each_scenario
from syncverify.settings import DEFAULTS, Settings
from syncverify.subjects.subject import Subject

_PART_SIZE: Final = 100
_MOST_CLASSES: Final = 1000  # of the schedules of one scenario


@functools.lru_cache(maxsize=2)
def scenarios_within(
    scope: SmallScope, capabilities: Capabilities
) -> tuple[Scenario, ...]:
    """Return each scenario of a contract within a scope.

    Raises:
        UsageError: There is none.
    """
    listed = tuple(scope.scenarios(capabilities))
    if not listed:
        raise UsageError(f"the contract leaves no scenario within {scope}")
    return listed


def exhaustive_settings(settings: Settings, capabilities: Capabilities) -> Settings:
    """Return the settings of a search that plays all scenarios of its scope.

    Raises:
        UsageError: A setting asks for something else.
    """
    if settings.backend != "sim":
        raise UsageError(
            f"an exhaustive search plays all schedules, which takes the backend sim, and not "
            f"{settings.backend}"
        )
    schedules = settings.schedules
    if schedules == DEFAULTS["schedules"]:
        schedules = f"all:{_MOST_CLASSES}"
    if ScheduleChoice.parse(schedules).mode != "all":
        raise UsageError(
            f"an exhaustive search plays all schedules: expected all or all:N, not {schedules!r}"
        )
    scope = SmallScope.parse(settings.scope)
    return replace(
        settings,
        schedules=schedules,
        ranks=scope.ranks,
        examples=len(scenarios_within(scope, capabilities)),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a scope that one call plays: `number` is its place, from 0."""

    number: int
    subject: bytes
    settings: Settings


@dataclass(frozen=True, slots=True)
class _Listed:
    """A sequence of given scenarios."""

    scenarios: tuple[Scenario, ...]

    def for_each(self, body: Callable[[Scenario, Draw], None], *_: Phase) -> None:
        """Call a function with each scenario; no schedule is drawn."""
        with suppress(EndedError):
            for scenario in self.scenarios:
                body(scenario, lambda _: DEFAULT_SCHEDULE)


def search_exhaustively(
    subject: Subject,
    backend: Backend,
    settings: Settings,
    progress: Progress,
    known: Collection[Identity] = (),
) -> SearchResult:
    """Play all scenarios of a scope that no earlier call of the same search has played.

    Args:
        subject: The synchronizer.
        backend: Backend that makes violations small.
        settings: Result of `exhaustive_settings`.
        progress: Receives the progress of all processes.
        known: Violations that an earlier run has shrunk.

    Returns:
        The result of all scenarios that were played, in this call or before.
    """
    search = _ExhaustiveSearch.resumed(subject, backend, settings, progress)
    result = search.play()
    met = result.met
    result.violations = [met.own[identity] for identity in met.told()]
    unshrunk = Replay(result, 0, frozenset(met.own) - {*known})
    return shrink_replayed(unshrunk, [], subject, backend, progress)


@dataclass(slots=True)
class _ExhaustiveSearch:
    """The parts of a scope, and what is known of those that were played.

    `known` is the result of the parts in `done`; `begun` has those of parts that ended early,
    which the next call plays as a whole.
    """

    subject: Subject
    settings: Settings
    progress: Progress
    file: PartsFile
    done: set[int]
    known: SearchResult
    begun: list[SearchResult] = field(default_factory=list)

    @classmethod
    def resumed(
        cls, subject: Subject, backend: Backend, settings: Settings, progress: Progress
    ) -> Self:
        """Return the search after the parts that an earlier call has played."""
        folder = settings.database
        file = PartsFile.of(
            subject,
            Path(folder) if isinstance(folder, str | Path) else DEFAULT_FOLDER,
            *(settings.backend, SmallScope.parse(settings.scope), settings.schedules),
        )
        parts = file.read()
        played = [
            scenario
            for number in sorted(parts.done)
            for scenario in _scenarios_of(number, subject, settings)
        ]
        result = _known_result(subject, backend, settings, parts, played)
        for identity in result.met.told():
            progress.found(result.met.own[identity])
        return cls(subject, settings, progress, file, {*parts.done}, result)

    def play(self) -> SearchResult:
        """Play the parts that are left, note each in the file, and return all that is known."""
        started = time.monotonic()
        num_parts = -(-self.settings.examples // _PART_SIZE)
        packed = pack_subject(self.subject)
        alone = replace(self.settings, database=None, progress=None)
        left = [
            _Part(number, packed, alone)
            for number in range(num_parts)
            if number not in self.done
        ]
        counts = JointProgress(self.progress, self.known.num_examples)
        with closing(self._results(left, counts, started)) as results:
            for part, result in results:
                self._note(part, result)
        if len(self.done) == num_parts:
            self.file.drop()
        result = merged([self.known, *self.begun])
        result.seconds = time.monotonic() - started
        return result

    def _results(
        self, left: list[_Part], counts: JointProgress, started: float
    ) -> Generator[tuple[_Part, SearchResult]]:
        """Play parts here, or in several processes."""
        limit = self.settings.time_limit_seconds

        def stops() -> bool:
            is_late = limit is not None and time.monotonic() > started + limit
            is_enough = self.settings.stop_at_first and counts.has_met
            return is_late or is_enough or any(each.stopped for each in self.begun)

        if self.settings.jobs > 1:
            jobs = self.settings.jobs
            yield from run_in_processes(
                _play_in_process, left, jobs=jobs, hear=counts.hear, stops=stops
            )
            return
        for part in left:
            if stops():
                return
            yield part, _play_part(part, self.subject, _HeardProgress(counts, stops))

    def _note(self, part: _Part, result: SearchResult) -> None:
        """Take the result of a part in; write the file after a whole one."""
        scenarios = _scenarios_of(part.number, self.subject, self.settings)
        if result.num_examples < len(scenarios):
            self.begun.append(result)
            return
        self.known = merged([self.known, result])
        self.done.add(part.number)
        met = self.known.met
        self.file.write(
            PartsPlayed(
                frozenset(self.done),
                dict(self.known.coverage.applied),
                self.known.statistics,
                tuple(met.own[identity].token for identity in met.told()),
            )
        )


def _scenarios_of(
    number: int, subject: Subject, settings: Settings
) -> tuple[Scenario, ...]:
    """Return the scenarios of one part."""
    scope = SmallScope.parse(settings.scope)
    listed = scenarios_within(scope, subject.capabilities)
    return listed[number * _PART_SIZE :][:_PART_SIZE]


def _known_result(
    subject: Subject,
    backend: Backend,
    settings: Settings,
    parts: PartsPlayed,
    played: list[Scenario],
) -> SearchResult:
    """Return the result of scenarios that an earlier call has played; violations are played again."""
    coverage, met = _coverage(subject, settings), Occurrences()
    for scenario in played:
        coverage.add(scenario)
    coverage.applied.update(parts.applied)
    judge = Judge(subject, backend, ScheduleChoice(), settings.random_seed)
    for token in parts.tokens:
        met.add(judge_again(judge, decode(token)).violations)
    return SearchResult(len(played), 0.0, coverage, [], parts.statistics, met)


def _coverage(subject: Subject, settings: Settings) -> Coverage:
    return Coverage(Space(subject.capabilities, settings.ranks))


@dataclass(frozen=True, slots=True)
class _HeardProgress(SilentProgress):
    """The progress of a part that is played in this process."""

    counts: JointProgress
    stops: Callable[[], bool]

    @override
    def played(self, num_examples: int, num_violations: int) -> None:
        self.counts.hear(ScenarioPlayed(num_violations))
        if self.stops():
            raise EndedError

    @override
    def found(self, violation: FoundViolation) -> None:
        self.counts.hear(ViolationMet(violation))


def _play_in_process(part: _Part) -> SearchResult:
    torch.set_num_threads(1)
    show_warnings_once()
    return _play_part(part, unpack_subject(part.subject), ToldProgress())


def _play_part(part: _Part, subject: Subject, progress: Progress) -> SearchResult:
    """Play the scenarios of a part, until the progress ends it."""
    settings, started = part.settings, time.monotonic()
    coverage, met = _coverage(subject, settings), Occurrences()
    collector = StatisticsCollector()
    scenarios = _scenarios_of(part.number, subject, settings)
    if is_to_stop():
        scenarios = ()
    choice = ScheduleChoice.parse(settings.schedules)

    def take(scenario: Scenario, judged: JudgedRun) -> None:
        coverage.add(scenario, judged.applied)
        for entry in met.add(judged.violations):
            progress.found(entry)
        progress.played(coverage.num_scenarios, len(met.own))

    with closing(open_backend(settings.backend, subject)) as backend:
        judge = Judge(subject, backend, choice, settings.random_seed)
        judge.listener = collector
        with played_lines(subject.factory) as lines:
            judge_each_scenario(_Listed(scenarios), judge, take)
    return SearchResult(
        coverage.num_scenarios,
        time.monotonic() - started,
        coverage,
        [],
        replace(collector.statistics(), lines=lines),
        met,
        judge.budget.stopped,
    )
