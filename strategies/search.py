"""Search for violations: draw scenarios, judge them, shrink what fails.

Two passes over the same random sequence. The first plays every scenario and notes the
identity (property and cause) of each violation. The second runs once per identity: the
same seed leads to the same scenario, which Hypothesis then shrinks as long as that very
identity stays. Verdicts are cached by scenario and schedule, so nothing is played twice
but to see whether that is the same: each scenario that is larger than all before it, and
each violation in the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from strategies.judge import Backend, Identity, Judge, OutOfBudgetError, Verdict
from strategies.reproducibility import blind_to_local_code
from strategies.scenarios import scenarios
from strategies.schedule_choice import ScheduleChoice
from strategies.schedule_coverage import Knowledge
from strategies.schedules import schedules
from syncverify.coverage import Coverage
from syncverify.decoding import VAGUE_CAUSES
from syncverify.ordering.held_memory import HeldMemory
from syncverify.properties import ALL_PROPERTIES
from syncverify.properties.determinism import subject_is_deterministic
from syncverify.scenario import Scenario
from syncverify.schedule import Decision, Schedule
from syncverify.subject import Subject
from syncverify.violation import Violation

_RANKING = [entry.name for entry in ALL_PROPERTIES]

# Bounds on shrinking are counts, not seconds: the same seed gives the same report.
_MAX_SHRINK_RUNS = 300
_DETERMINISM = subject_is_deterministic.__name__

Draw = Callable[[int], Schedule]


class Progress(Protocol):
    """Told how the search goes on."""

    def played(self, num_examples: int, num_violations: int) -> None:
        """Note that one more scenario was played."""

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Note that one more scenario was played to make a violation smaller."""


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
    held: HeldMemory


def search(
    subject: Subject,
    backend: Backend,
    *,
    max_ranks: int,
    num_examples: int,
    random_seed: int,
    time_limit_seconds: float | None,
    progress: Progress,
    choice: ScheduleChoice | None = None,
) -> SearchResult:
    """Search for violations of a subject on a backend.

    Args:
        subject: The synchronizer under test.
        backend: Where scenarios are played.
        max_ranks: Largest world.
        num_examples: Scenarios to play, at most.
        random_seed: Same seed, same scenarios, same result.
        time_limit_seconds: When to stop early; None means never.
        progress: Told how it goes on.
        choice: Which schedules to play; None means the default choice.

    Returns:
        What was covered and found.
    """
    started = time.monotonic()
    deadline = None if time_limit_seconds is None else started + time_limit_seconds
    judge = Judge(subject, backend, choice or ScheduleChoice(), random_seed, deadline)
    space = _Space(subject, max_ranks, num_examples, random_seed)
    coverage, met, known = _explore(space, judge, progress)
    overlaps = (judge.num_overlaps, judge.num_overlaps_possible)
    held = judge.held
    distinct = _without_echoes(met)
    shrunk = [_shrink(space, judge, identity, progress) for identity in distinct]
    found = [entry for entry in shrunk if entry is not None]
    return SearchResult(
        coverage.num_scenarios,
        time.monotonic() - started,
        coverage,
        [*found, *_chance(judge, found)],
        known,
        overlaps,
        held,
    )


class _ReproducedError(Exception):
    """Tells Hypothesis that a scenario still shows the violation."""


@dataclass(frozen=True, slots=True)
class _Space:
    """Where to search."""

    subject: Subject
    max_ranks: int
    num_examples: int
    random_seed: int

    def for_each(self, body: Callable[[Scenario, Draw], None], *phases: Phase) -> None:
        """Call `body` on random scenarios; the sequence depends on the seed alone.

        `body` may draw a schedule, of as many decisions as it says.
        """
        failures: list[BaseException] = []

        def guarded(scenario: Scenario, data: st.DataObject) -> None:
            """Keep errors of ours from Hypothesis, which would play them again."""
            try:
                if not failures:
                    body(scenario, lambda count: data.draw(schedules(count)))
            except _ReproducedError:  # what Hypothesis is to shrink
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001  # raised below
                failures.append(error)

        drawn = scenarios(
            max_ranks=self.max_ranks, capabilities=self.subject.capabilities
        )
        configured = settings(
            max_examples=self.num_examples,
            phases=phases,
            database=None,
            deadline=None,
            print_blob=False,
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        with contextlib.suppress(_ReproducedError), blind_to_local_code():
            seed(self.random_seed)(configured(given(drawn, st.data())(guarded)))()
        if failures:
            raise failures[0]


def _explore(
    space: _Space, judge: Judge, progress: Progress
) -> tuple[Coverage, dict[Identity, None], list[Knowledge]]:
    coverage = Coverage()
    met: dict[Identity, None] = {}
    largest = 0

    def explore(scenario: Scenario, draw: Draw) -> None:
        nonlocal largest
        size = len(scenario.parameters) * scenario.mesh.num_ranks
        try:
            verdict = judge.verdict(scenario, draw, twice=size > largest)
        except OutOfBudgetError:
            return
        largest = max(largest, size)
        met.update(dict.fromkeys(verdict.violations))
        coverage.add(scenario)
        progress.played(coverage.num_scenarios, len(met))

    space.for_each(explore, Phase.generate)
    return coverage, met, list(judge.known.values())


def _without_echoes(met: Iterable[Identity]) -> list[Identity]:
    """Drop causes that only say that something is wrong, where a better one is known."""
    ordered = sorted(met, key=lambda identity: _RANKING.index(identity[0]))
    explained = {name for name, cause in ordered if cause not in VAGUE_CAUSES}
    return [
        (name, cause)
        for name, cause in ordered
        if cause not in VAGUE_CAUSES or name not in explained
    ]


def _shrink(
    space: _Space, judge: Judge, identity: Identity, progress: Progress
) -> Found | None:
    smallest: Found | None = None
    judge.num_slow_runs, judge.runs_left = 0, _MAX_SHRINK_RUNS
    before = judge.num_runs
    twice = identity[0] == _DETERMINISM

    def probe(scenario: Scenario, draw: Draw) -> None:
        nonlocal smallest
        runs = judge.num_runs
        try:
            verdict = judge.verdict(scenario, draw, twice=twice)
        except OutOfBudgetError:
            return
        for number in range(runs, judge.num_runs):
            progress.shrinking(identity, number + 1 - before)
        if identity in verdict.violations:
            smallest = _found(scenario, verdict, identity)
            raise _ReproducedError

    space.for_each(probe, Phase.generate, Phase.shrink)
    if smallest is None or not smallest.decisions:
        return smallest
    schedule = Schedule(tuple(d.chosen for d in smallest.decisions))
    simplest = judge.simplified(smallest.scenario, schedule, identity)
    return _found(smallest.scenario, simplest, identity)


def _found(scenario: Scenario, verdict: Verdict, identity: Identity) -> Found:
    return Found(verdict.violations[identity], scenario, verdict.decisions)


def _chance(judge: Judge, found: list[Found]) -> list[Found]:
    """Play each violation twice: if it depends on chance, say so."""
    if any(entry.violation.property == _DETERMINISM for entry in found):
        return []
    for entry in found:
        judge.num_slow_runs, judge.runs_left = 0, 2
        schedule = Schedule(tuple(d.chosen for d in entry.decisions))
        with contextlib.suppress(OutOfBudgetError):
            verdict = judge.followed(entry.scenario, schedule, twice=True)
            for identity in verdict.violations:
                if identity[0] == _DETERMINISM:
                    return [_found(entry.scenario, verdict, identity)]
    return []
