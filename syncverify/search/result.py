"""The plan of a search, its progress, its result, and the merged result of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from syncverify.judge.decoding import VAGUE_CAUSES
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.values import (
    gradient_equals_reference,
    gradient_is_within_rounding,
    unreduced_stay_local,
)
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.statistics import RunStatistics

_OF_MODULES = gradient_is_within_rounding.__name__
_OF_WHOLE_NUMBERS = {gradient_equals_reference.__name__, unreduced_stay_local.__name__}
_RANKING = [entry.name for entry in ALL_PROPERTIES]


class Progress(Protocol):
    """Receives the progress of a search."""

    def played(self, num_examples: int, num_violations: int) -> None:
        """Receive the numbers of scenarios and distinct violations so far.

        An `EndedError` that is raised here ends the exploration.
        """

    def found(self, violation: FoundViolation) -> None:
        """Receive a violation at the moment at which it is first met, before it is shrunk."""

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Receive the number of runs made so far to shrink one violation."""

    def shrunk(self, violation: FoundViolation) -> None:
        """Receive a violation in the smallest scenario that shows it."""


class SilentProgress:
    """Progress that is not shown."""

    def played(self, num_examples: int, num_violations: int) -> None:
        """Do nothing."""

    def found(self, violation: FoundViolation) -> None:
        """Do nothing."""

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Do nothing."""

    def shrunk(self, violation: FoundViolation) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Size and seed of a search.

    Attributes:
        max_ranks: Largest world size.
        num_examples: Largest number of scenarios.
        random_seed: Seed; equal seeds give equal scenarios and equal results.
        time_limit_seconds: Seconds after which no run starts; None for no limit.
        choice: Schedules to play.
        known: Identities of violations that an earlier run has shrunk; they are not shrunk
            again.
        stop_at_first: Whether the first violation ends the exploration.
    """

    max_ranks: int
    num_examples: int
    random_seed: int
    time_limit_seconds: float | None = None
    choice: ScheduleChoice = field(default_factory=ScheduleChoice)
    known: frozenset[Identity] = frozenset()
    stop_at_first: bool = False


@dataclass(slots=True)
class SearchResult:
    """Coverage, violations and statistics of a search.

    Attributes:
        num_examples: Number of scenarios played before shrinking.
        seconds: Seconds of the search, including shrinking.
        coverage: Features of these scenarios.
        violations: One entry per identity, in the order of `ALL_PROPERTIES`.
        statistics: Statistics of the runs before shrinking.
    """

    num_examples: int
    seconds: float
    coverage: Coverage
    violations: list[FoundViolation]
    statistics: RunStatistics = field(default_factory=RunStatistics)


def scenario_size(scenario: Scenario) -> tuple[int, ...]:
    """Return the size of a scenario to its reader, the most important number first."""
    return (
        scenario.mesh.num_ranks,
        len(scenario.mesh.shape),
        len(scenario.parameters),
        scenario.num_steps,
        sum(scenario.accumulations),
        len(list(optional_features(scenario))),
        sum(math.prod(spec.global_shape) for spec in scenario.parameters),
    )


def distinct_identities(identities: Iterable[Identity]) -> list[Identity]:
    """Return identities in the order of `ALL_PROPERTIES`, without the explained ones.

    A vague cause is left out if its property has a precise one, and so is a violation of a
    module's gradient if exact gradients show its cause as well.
    """
    ordered = sorted(identities, key=lambda identity: _RANKING.index(identity[0]))
    explained = {name for name, cause in ordered if cause not in VAGUE_CAUSES}
    exact = {cause for name, cause in ordered if name in _OF_WHOLE_NUMBERS}
    return [
        (name, cause)
        for name, cause in ordered
        if (cause not in VAGUE_CAUSES or name not in explained)
        and not (name == _OF_MODULES and _is_shown_by(exact, cause))
    ]


def _is_shown_by(exact: set[str], cause: str) -> bool:
    """Tell whether causes of exact gradients include a cause, or explain a vague one."""
    return cause in exact or (cause in VAGUE_CAUSES and bool(exact))


def merged(results: Sequence[SearchResult]) -> SearchResult:
    """Return results on one subject and backend, at least one, as those of one search.

    Of each violation the smallest scenario counts, of equals the first. The seconds of the
    result are those of the slowest search.
    """
    coverage = Coverage(results[0].coverage.space)
    smallest: dict[Identity, FoundViolation] = {}
    for result in results:
        coverage.update(result.coverage)
        for entry in result.violations:
            known = smallest.setdefault(entry.violation.identity, entry)
            if scenario_size(entry.scenario) < scenario_size(known.scenario):
                smallest[entry.violation.identity] = entry
    return SearchResult(
        sum(result.num_examples for result in results),
        max(result.seconds for result in results),
        coverage,
        [smallest[identity] for identity in distinct_identities(smallest)],
        RunStatistics.merged([result.statistics for result in results]),
    )
