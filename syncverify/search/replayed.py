"""A scenario that is played once more: for a replay, a page, a script or one play by hand."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.judge.ordering.races import places_of
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.judge.violation import Violation
from syncverify.playing.choice import AnyBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.features import features_outside
from syncverify.scenario.replay_token import Reproducer
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge, RunListener
from syncverify.subjects.subject import Subject
from syncverify.trace.run import ENDED_FROM_OUTSIDE, Run
from syncverify.trace.timeline.timeline import RecordKey


@dataclass(frozen=True)
class Replayed:
    """A scenario that was played once more, and all violations of the run."""

    scenario: Scenario
    capabilities: Capabilities
    run: Run
    found: Mapping[Identity, FoundViolation]
    # The violation of the reproducer as the run shows it, or as it was known.
    violation: Violation
    launches_per_step: int

    @cached_property
    def judgement(self) -> Judgement:
        """The run beside its reference."""
        right = reference(self.scenario, self.capabilities, self.run.device)
        return Judgement(self.scenario, self.run, right)

    @property
    def race(self) -> tuple[RecordKey, RecordKey] | None:
        """The two records of the run that nothing orders, if the violation is about two."""
        return places_of(self.violation.evidence.unordered, self.run)


@dataclass(slots=True)
class _LastRun(RunListener):
    """Keeps the last run, of which a verdict tells."""

    run: Run | None = None

    @override
    def run_judged(self, scenario: Scenario, run: Run, *, is_refused: bool) -> None:
        self.run = run


def replayed(
    reproducer: Reproducer,
    subject: Subject,
    backend: Backend,
    known: Violation | None = None,
) -> Replayed:
    """Return a play of a reproducer, with its schedule, judged by all properties.

    The violation of the play is `known` where the run does not show it.

    Raises:
        OutOfBudgetError: The backend has lost its ranks.
    """
    kept = _LastRun()
    judge = Judge(subject, backend, ScheduleChoice(), random_seed=0, listener=kept)
    judged = judge.judge_reproducer(reproducer)
    identity = (reproducer.property, reproducer.cause)
    same = judged.violations.get(identity)
    assert kept.run is not None
    if same is not None:
        known = same.violation
    return Replayed(
        scenario=reproducer.scenario,
        capabilities=subject.capabilities,
        run=kept.run,
        found=judged.violations,
        violation=known or Violation(*identity, "it does not occur"),
        launches_per_step=judged.launches_per_step,
    )


def shown_again(
    entry: FoundViolation, subject: Subject, backend: AnyBackend
) -> Replayed | None:
    """Return a play of a violation, for its trace and its gradients.

    None stands for a run that would end or hold the process, and for a backend that has lost its
    ranks.
    """
    if isinstance(backend, SimBackend):
        # One that has not learned to leave accesses out.
        backend = SimBackend(watches_engine=True)
    if entry.violation.cause not in ENDED_FROM_OUTSIDE:
        identity = entry.violation.identity
        known = Reproducer(*identity, entry.scenario, entry.schedule)
        with contextlib.suppress(OutOfBudgetError):
            return replayed(known, subject, backend, entry.violation)
    return None


def observing(subject: Subject, scenario: Scenario) -> Subject:
    """Let a subject refuse features beyond its contract; a plain one is a `UsageError`."""
    own = subject.capabilities
    newer = {*own.newer_features}
    found = features_outside(scenario, own)
    beyond = {str(each) for each in found if each in OPTIONAL or each in newer}
    refused, left_out = own.refused | beyond, own.outside - beyond
    capabilities = replace(own, refused=refused, outside=left_out)
    outside = [*map(str, features_outside(scenario, capabilities))]
    if outside:
        raise UsageError(
            f"subject {subject.name!r} does not promise to handle {', '.join(outside)}: its "
            "capabilities leave that out; replay with a subject that covers it"
        )
    return replace(subject, capabilities=capabilities)
