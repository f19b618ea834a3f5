"""A scenario that is played once more: for a replay, a page, a script or one play by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from syncverify.judge.ordering.unordered import places_of
from syncverify.judge.properties.determinism import subject_is_deterministic
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.playing.choice import AnyBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.replay_token import Reproducer
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import ScheduleChoice, ScheduleCoverage
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge, JudgedRun
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run
from syncverify.trace.timeline.timeline import RecordKey

# These end the process, or keep it for good.
_NOT_AGAIN = frozenset({"process_died", "never_returns"})


@dataclass(frozen=True)
class Replayed:
    """A scenario that was played once more.

    Attributes:
        run: The run.
        found: Its violations, by identity.
        violation: The violation of the reproducer as the run shows it, or as it was known.
    """

    scenario: Scenario
    capabilities: Capabilities
    run: Run
    found: Mapping[Identity, FoundViolation]
    violation: Violation
    launches_per_step: int

    @cached_property
    def judgement(self) -> Judgement:
        """The run beside its reference."""
        right = reference(self.scenario, self.capabilities, self.run.device)
        return Judgement(self.scenario, self.run, right)


@dataclass(slots=True)
class _LastRun:
    """A listener that keeps the last run, of which a verdict tells."""

    run: Run | None = field(default=None)

    def run_judged(self, scenario: Scenario, run: Run) -> None:
        """Keep a run."""
        self.run = run

    def scenario_refused(self, digest: bytes) -> None:
        """Ignore that the subject refused it."""

    def schedules_played(self, digest: bytes, coverage: ScheduleCoverage) -> None:
        """Ignore schedules: one is played."""


def judge_again(judge: Judge, reproducer: Reproducer) -> JudgedRun:
    """Play a reproducer as the search did: twice for a violation that two runs show.

    Returns:
        The judged run, with all its violations.

    Raises:
        OutOfBudgetError: The judge may make no more runs.
    """
    twice = reproducer.property == subject_is_deterministic.__name__
    return judge.judge_schedule(reproducer.scenario, reproducer.schedule, twice=twice)


def replayed(
    reproducer: Reproducer,
    subject: Subject,
    backend: Backend,
    known: Violation | None = None,
) -> Replayed:
    """Play the scenario of a reproducer, with its schedule, and judge it by all properties.

    Returns:
        The play. Its violation is `known` where the run does not show it.

    Raises:
        OutOfBudgetError: The backend has lost its ranks.
    """
    kept = _LastRun()
    judge = Judge(subject, backend, ScheduleChoice(), random_seed=0, listener=kept)
    judged = judge_again(judge, reproducer)
    identity = (reproducer.property, reproducer.cause)
    same = judged.violations.get(identity)
    known = known or Violation(*identity, "it does not occur")
    assert kept.run is not None
    return Replayed(
        scenario=reproducer.scenario,
        capabilities=subject.capabilities,
        run=kept.run,
        found=judged.violations,
        violation=known if same is None else same.violation,
        launches_per_step=judged.launches_per_step,
    )


def shown_again(
    entry: FoundViolation, subject: Subject, backend: AnyBackend
) -> Replayed | None:
    """Play the scenario of a violation for its trace and its gradients.

    Returns:
        The play; None where the run would end or hold the process, or the backend has lost its
        ranks.
    """
    if entry.violation.cause in _NOT_AGAIN:
        return None
    if isinstance(backend, SimBackend):
        # One that has not learned to leave accesses out.
        backend = SimBackend(watches_engine=True)
    try:
        known = Reproducer(*entry.violation.identity, entry.scenario, entry.schedule)
        return replayed(known, subject, backend, entry.violation)
    except OutOfBudgetError:
        return None


def race_of(shown: Replayed) -> tuple[RecordKey, RecordKey] | None:
    """Return the two records of a run that nothing orders, if a violation is about two."""
    return places_of(shown.violation.evidence.unordered, shown.run)
