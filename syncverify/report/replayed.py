"""A violation that was played once more, for its trace and its gradients."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncverify.backends.choice import AnyBackend
from syncverify.backends.sim import SimBackend
from syncverify.judge.ordering.races import EarlyFree, Race
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.scenario.scenario import Scenario
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.replay import judge_again
from syncverify.search.schedules import ScheduleChoice, ScheduleCoverage
from syncverify.subjects.subject import Subject
from syncverify.timeline.timeline import RecordKey
from syncverify.trace.run import Run

# These end the process, or keep it for good.
_NOT_AGAIN = frozenset({"process_died", "never_returns"})


@dataclass(frozen=True, slots=True)
class Replayed:
    """A violation beside a run that shows it.

    Attributes:
        violation: The violation as the run shows it; that of the search if the run does not.
        judgement: The run beside its reference.
    """

    violation: Violation
    judgement: Judgement


@dataclass(slots=True)
class _LastRun:
    """A listener that keeps the last run, of which a verdict tells."""

    run: Run | None = field(default=None)

    def run_judged(self, scenario: Scenario, run: Run) -> None:
        """Keep a run."""
        self.run = run

    def scenario_refused(self, scenario: Scenario) -> None:
        """Ignore that the subject refused it."""

    def schedules_played(self, scenario: Scenario, coverage: ScheduleCoverage) -> None:
        """Ignore schedules: one is played."""


def replayed(
    entry: FoundViolation, subject: Subject, backend: AnyBackend
) -> Replayed | None:
    """Play the scenario of a violation, with its schedule.

    Returns:
        None where the run would end or hold the process, or the backend has lost its ranks.
    """
    if entry.violation.cause in _NOT_AGAIN:
        return None
    if isinstance(backend, SimBackend):
        # One that has not learned to leave accesses out.
        backend = SimBackend(watches_engine=True)
    kept = _LastRun()
    judge = Judge(subject, backend, ScheduleChoice(), random_seed=0, listener=kept)
    try:
        found = judge_again(judge, entry.reproducer).violations
    except OutOfBudgetError:
        return None
    assert kept.run is not None
    same = found.get(entry.violation.identity, entry)
    right = reference(entry.scenario, subject.capabilities, kept.run.device)
    return Replayed(same.violation, Judgement(entry.scenario, kept.run, right))


def race_of(shown: Replayed) -> tuple[RecordKey, RecordKey] | None:
    """Return the two records of a run that nothing orders, if a violation is about two."""
    unordered = shown.violation.unordered
    match unordered:
        case Race():
            pair: tuple[object, object] = (unordered.first, unordered.second)
        case EarlyFree():
            pair = (unordered.use, unordered.freed)
        case None:
            return None
    # By identity: the judge may have left records out, which moves the others.
    trace = shown.judgement.run.ranks[unordered.rank].trace
    places = {id(record): index for index, record in enumerate(trace)}
    first, second = (places.get(id(record)) for record in pair)
    if first is None or second is None:  # the run does not show the violation any more
        return None
    return (unordered.rank, first), (unordered.rank, second)
