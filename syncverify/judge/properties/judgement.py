"""Input and output of a property: the judgement of a run, and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from typing_extensions import override

from syncverify.judge.evidence import NO_EVIDENCE, Evidence
from syncverify.judge.reference import Reference
from syncverify.judge.signs import Clues, Signs
from syncverify.judge.traced import Traced, launches_of
from syncverify.judge.violation import Violation
from syncverify.scenario import step_plan
from syncverify.scenario.features import may_raise, overflows, refuses_plain_steps
from syncverify.scenario.scenario import Scenario
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import CollectiveLaunch, TraceRecord
from syncverify.trace.run import Observation, RankRun, Run


@dataclass(frozen=True)
class Judgement(Traced):
    """A run beside its reference.

    Attributes:
        scenario: The scenario that was played.
        run: Its observations and traces.
        reference: The right gradients.
        again: A second run of the same scenario and schedule; None if there is none.
    """

    scenario: Scenario
    run: Run
    reference: Reference
    again: Run | None = None

    @property
    @override
    def has_stream_rules_alone(self) -> bool:
        return self.reference.capabilities.is_for_nccl

    @property
    def traces(self) -> Iterator[list[TraceRecord]]:
        """The trace of each rank."""
        return (rank_run.trace for rank_run in self.run.ranks)

    @property
    def records(self) -> Iterator[TraceRecord]:
        """The traces of all ranks, one after the other."""
        return chain.from_iterable(self.traces)

    @property
    def observations(self) -> Iterator[Observation]:
        """The observations of all ranks."""
        return chain.from_iterable(rank.observations for rank in self.run.ranks)

    def was_seen(self, point: str) -> bool:
        """Tell whether a rank read its gradients at a point, such as `reduced`."""
        return any(seen.point == point for seen in self.observations)

    @property
    def refused_step(self) -> int | None:
        """The step in which the subject raised, where its contract allows that; else None."""
        fault = self.run.fault
        if fault is None or fault.kind != "raised":
            return None
        capabilities = self.reference.capabilities
        may_refuse = may_raise(
            self.scenario, capabilities, fault.step
        ) or refuses_plain_steps(self.scenario, capabilities)
        # Many synchronizers look for gradients that are not finite, and say so.
        looks = fault.is_clear and overflows(self.scenario)
        return fault.step if may_refuse or looks else None

    def was_refused(self, step: int) -> bool:
        """Tell whether the subject refused a step; the gradients of that step are not used."""
        return step == self.refused_step

    @override
    def _judged_records(self, rank_run: RankRun) -> Sequence[TraceRecord]:
        """Return the trace of a rank without the refused step, whose gradients are not used."""
        refused, trace = self.refused_step, rank_run.trace
        if refused is None:
            return trace
        return [record for record in trace if record.moment.step < refused]


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a property does not hold; fields mean those of a `Violation`.

    `rank` is None for all ranks, and `parameter` where the finding is about none. `shows`
    and `explained_by` are signs, see `Clues`.
    """

    cause: str
    summary: str
    rank: int | None = None
    parameter: str | None = None
    evidence: Evidence = NO_EVIDENCE
    shows: Signs = frozenset()
    explained_by: Signs = frozenset()


Check = Callable[[Judgement], Iterator[Finding]]


def launches_of_step(trace: Iterable[TraceRecord], step: int) -> list[CollectiveLaunch]:
    """List the launches over two ranks or more in backward and `wait()` of a step."""
    return [
        launch
        for launch in launches_of(trace)
        if len(launch.ranks) > 1
        and launch.moment.step == step
        and launch.moment.phase in {"backward", "wait"}
    ]


def early_launches(judgement: Judgement, rank: int) -> Iterator[CollectiveLaunch]:
    """Yield the reductions of a rank, also over itself, before the last micro-batch of a step."""
    for launch in launches_of(judgement.run.ranks[rank].trace):
        step, micro_batch = launch.moment.step, launch.moment.micro_batch
        is_reduction = launch.operation in REDUCING_OPERATIONS
        if micro_batch is None or not is_reduction or judgement.was_refused(step):
            continue
        if (
            micro_batch
            < step_plan.num_agreed_micro_batches(judgement.scenario, step) - 1
        ):
            yield launch


def merge(name: str, findings: Iterable[Finding]) -> list[Violation]:
    """Return one violation per cause for the findings of one property.

    The first finding of a cause gives summary and evidence; the others add their ranks
    and parameters.
    """
    by_cause: dict[str, list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault(finding.cause, []).append(finding)
    return [
        Violation(
            property=name,
            cause=cause,
            summary=found[0].summary,
            ranks=tuple(sorted({f.rank for f in found if f.rank is not None})),
            parameters=tuple(dict.fromkeys(f.parameter for f in found if f.parameter)),
            evidence=found[0].evidence,
            clues=Clues(
                frozenset().union(*(f.shows for f in found)),
                frozenset(f.explained_by for f in found),
            ),
        )
        for cause, found in by_cause.items()
    ]
