"""What a search is asked for, what it came to, and what several came to together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from strategies.judge import Identity, Verdict
from strategies.schedule_choice import ScheduleChoice
from strategies.schedule_coverage import Knowledge
from syncverify.coverage import Coverage
from syncverify.decoding import VAGUE_CAUSES
from syncverify.features import beyond
from syncverify.ordering.held_memory import HeldMemory
from syncverify.properties import ALL_PROPERTIES
from syncverify.properties.rounding import gradient_is_within_rounding
from syncverify.properties.values import (
    gradient_equals_reference,
    unreduced_stay_local,
)
from syncverify.scenario import Scenario
from syncverify.schedule import Decision, Schedule
from syncverify.violation import Violation

_OF_MODULES = gradient_is_within_rounding.__name__
_OF_WHOLE_NUMBERS = {gradient_equals_reference.__name__, unreduced_stay_local.__name__}
_RANKING = [entry.name for entry in ALL_PROPERTIES]


class Progress(Protocol):
    """Told how a search goes on."""

    def played(self, num_examples: int, num_violations: int) -> None:
        """Note that one more scenario was played."""

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Note that one more scenario was played to make a violation smaller."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What to search.

    Attributes:
        max_ranks: Largest world.
        num_examples: Scenarios to play, at most.
        random_seed: Same seed, same scenarios, same result.
        time_limit_seconds: When to stop early; None means never.
        choice: Which schedules to play.
        known: Identities of violations that were made small before, and need not be again.
    """

    max_ranks: int
    num_examples: int
    random_seed: int
    time_limit_seconds: float | None = None
    choice: ScheduleChoice = field(default_factory=ScheduleChoice)
    known: frozenset[Identity] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """A violation in the smallest scenario that shows it.

    Attributes:
        violation: The violation.
        scenario: The scenario.
        decisions: What timing decided.
    """

    violation: Violation
    scenario: Scenario
    decisions: tuple[Decision, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that leads to it."""
        return Schedule.of(self.decisions)


@dataclass(slots=True)
class SearchResult:
    """What a search came to.

    Attributes:
        num_examples: Scenarios played before shrinking.
        seconds: How long it took, shrinking included.
        coverage: What those scenarios contained.
        found: One entry per identity, in the order of `ALL_PROPERTIES`.
        known: What is known of the schedules of each scenario.
        overlaps: In how many steps of ranks a reduction overlapped with backward, and in
            how many one could have.
        held: The most memory that `record_stream` held back in one of those scenarios.
    """

    num_examples: int
    seconds: float
    coverage: Coverage
    found: list[Found]
    known: list[Knowledge]
    overlaps: tuple[int, int]
    held: HeldMemory = field(default_factory=HeldMemory)


def found_in(scenario: Scenario, verdict: Verdict, identity: Identity) -> Found:
    """Put together what there is to know of a violation."""
    return Found(verdict.violations[identity], scenario, verdict.decisions)


def bulk(scenario: Scenario) -> tuple[int, ...]:
    """Measure how much there is to read in a scenario, what matters most first."""
    return (
        scenario.mesh.num_ranks,
        len(scenario.mesh.shape),
        len(scenario.parameters),
        scenario.num_steps,
        sum(scenario.accumulations),
        len(list(beyond(scenario))),
        sum(math.prod(spec.global_shape) for spec in scenario.parameters),
    )


def distinct(met: Iterable[Identity]) -> list[Identity]:
    """Sort identities by property.

    Args:
        met: Identities, in any order.

    Returns:
        The same without causes that only say that something is wrong, where a better one
        is known.
    """
    ordered = sorted(met, key=lambda identity: _RANKING.index(identity[0]))
    explained = {name for name, cause in ordered if cause not in VAGUE_CAUSES}
    exact = {cause for name, cause in ordered if name in _OF_WHOLE_NUMBERS}
    return [
        (name, cause)
        for name, cause in ordered
        if (cause not in VAGUE_CAUSES or name not in explained)
        and not (name == _OF_MODULES and _is_known(cause, exact))
    ]


def _is_known(cause: str, exact: set[str]) -> bool:
    """Tell whether whole numbers show as well, and better, what modules show."""
    return cause in exact or (cause in VAGUE_CAUSES and bool(exact))


def merged(results: Sequence[SearchResult]) -> SearchResult:
    """Put searches together: of each violation the smallest scenario, the first of equals.

    Args:
        results: At least one, on one subject and backend.

    Returns:
        One result, as if of one search; it took as long as the slowest.
    """
    coverage = Coverage(results[0].coverage.space)
    least: dict[Identity, Found] = {}
    for result in results:
        coverage.update(result.coverage)
        for entry in result.found:
            known = least.setdefault(entry.violation.identity, entry)
            if bulk(entry.scenario) < bulk(known.scenario):
                least[entry.violation.identity] = entry
    return SearchResult(
        sum(result.num_examples for result in results),
        max(result.seconds for result in results),
        coverage,
        [least[identity] for identity in distinct(least)],
        [knowledge for result in results for knowledge in result.known],
        (
            sum(result.overlaps[0] for result in results),
            sum(result.overlaps[1] for result in results),
        ),
        max((result.held for result in results), key=lambda held: held.extent),
    )
