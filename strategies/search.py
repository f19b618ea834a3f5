"""Search for violations: draw scenarios, judge them, shrink what fails.

Two passes over the same random sequence. The first plays every scenario and notes the
identity (property and cause) of each violation. The second runs once per identity: the
same seed leads to the same scenario, which Hypothesis then shrinks as long as that very
identity stays. Verdicts are cached by scenario, so no scenario is played twice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from strategies.reproducibility import blind_to_local_code
from strategies.scenarios import scenarios
from syncverify.coverage import Coverage
from syncverify.decoding import VAGUE_CAUSES
from syncverify.properties import ALL_PROPERTIES, check
from syncverify.run import Run
from syncverify.scenario import Scenario
from syncverify.subject import Subject
from syncverify.violation import Violation

Identity = tuple[str, str]

_RANKING = [entry.name for entry in ALL_PROPERTIES]

# Bounds on shrinking are counts, not seconds: the same seed gives the same report.
_MAX_SHRINK_RUNS = 300
# A run that ends in a fault on real processes, or in a hang anywhere, costs seconds.
_MAX_SLOW_RUNS = 3


class Backend(Protocol):
    """What a search needs of a backend."""

    @property
    def name(self) -> str:
        """Name used in reports."""

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario."""


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
    """

    violation: Violation
    scenario: Scenario


@dataclass(slots=True)
class SearchResult:
    """What a search came to.

    Attributes:
        num_examples: Scenarios played before shrinking.
        seconds: How long it took, shrinking included.
        coverage: What those scenarios contained.
        found: One entry per identity, in the order of `ALL_PROPERTIES`.
    """

    num_examples: int
    seconds: float
    coverage: Coverage
    found: list[Found]


def search(
    subject: Subject,
    backend: Backend,
    *,
    max_ranks: int,
    num_examples: int,
    random_seed: int,
    time_limit_seconds: float | None,
    progress: Progress,
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

    Returns:
        What was covered and found.
    """
    started = time.monotonic()
    deadline = None if time_limit_seconds is None else started + time_limit_seconds
    judge = _Judge(subject, backend, deadline)
    space = _Space(subject, max_ranks, num_examples, random_seed)
    coverage, met = _explore(space, judge, progress)
    distinct = _without_echoes(met)
    found = [_shrink(space, judge, identity, progress) for identity in distinct]
    return SearchResult(
        coverage.num_scenarios,
        time.monotonic() - started,
        coverage,
        [entry for entry in found if entry is not None],
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

    def for_each(self, body: Callable[[Scenario], None], *phases: Phase) -> None:
        """Call `body` on random scenarios; the sequence depends on the seed alone."""
        failures: list[BaseException] = []

        def guarded(scenario: Scenario) -> None:
            """Keep errors of ours from Hypothesis, which would play them again."""
            try:
                if not failures:
                    body(scenario)
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
            seed(self.random_seed)(configured(given(drawn)(guarded)))()
        if failures:
            raise failures[0]


@dataclass(slots=True)
class _Judge:
    """Plays and judges scenarios, each one once."""

    subject: Subject
    backend: Backend
    deadline: float | None
    verdicts: dict[Scenario, dict[Identity, Violation]] = field(default_factory=dict)
    num_slow_runs: int = 0

    def is_out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def violations(self, scenario: Scenario) -> dict[Identity, Violation]:
        if scenario not in self.verdicts:
            run = self.backend.run(scenario, self.subject)
            self.num_slow_runs += _is_slow(run)
            found = check(scenario, run, self.subject.capabilities)
            self.verdicts[scenario] = {
                violation.identity: violation for violation in found
            }
        return self.verdicts[scenario]


def _is_slow(run: Run) -> bool:
    return run.fault is not None and (
        run.backend != "sim" or run.fault.kind == "never_returns"
    )


def _explore(
    space: _Space, judge: _Judge, progress: Progress
) -> tuple[Coverage, dict[Identity, None]]:
    coverage = Coverage()
    met: dict[Identity, None] = {}

    def explore(scenario: Scenario) -> None:
        if judge.is_out_of_time() or judge.num_slow_runs >= _MAX_SLOW_RUNS:
            return
        met.update(dict.fromkeys(judge.violations(scenario)))
        coverage.add(scenario)
        progress.played(coverage.num_scenarios, len(met))

    space.for_each(explore, Phase.generate)
    return coverage, met


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
    space: _Space, judge: _Judge, identity: Identity, progress: Progress
) -> Found | None:
    smallest: Found | None = None
    num_runs = 0
    judge.num_slow_runs = 0

    def probe(scenario: Scenario) -> None:
        nonlocal smallest, num_runs
        if scenario not in judge.verdicts:
            if (
                num_runs >= _MAX_SHRINK_RUNS
                or judge.num_slow_runs >= _MAX_SLOW_RUNS
                or judge.is_out_of_time()
            ):
                return
            num_runs += 1
            progress.shrinking(identity, num_runs)
        violation = judge.violations(scenario).get(identity)
        if violation is not None:
            smallest = Found(violation, scenario)
            raise _ReproducedError

    space.for_each(probe, Phase.generate, Phase.shrink)
    return smallest
