"""The judgement of a run, which properties take, and violations joined from what they find."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from typing_extensions import override

from syncverify.judge.reference import Reference
from syncverify.judge.traced import Traced, launches_of
from syncverify.judge.violation import Violation
from syncverify.scenario import step_plan
from syncverify.scenario.features import may_raise, overflows, refuses_plain_steps
from syncverify.scenario.layout import local_shape
from syncverify.scenario.scenario import Scenario
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import CollectiveLaunch, TraceRecord
from syncverify.trace.run import Observation, RankRun, Run


@dataclass(frozen=True)
class Judgement(Traced):
    """A run beside its reference."""

    scenario: Scenario
    run: Run
    reference: Reference
    again: Run | None = None  # a second run of the same scenario and schedule

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

    def numel(self, name: str, rank: int) -> int:
        """Count the elements of a rank's part of a gradient; 0 of a frozen parameter."""
        mesh = self.scenario.mesh
        specs = (spec for spec in self.scenario.trainable if spec.name == name)
        return sum(math.prod(local_shape(mesh, spec, rank)) for spec in specs)

    @property
    def refused_step(self) -> int | None:
        """The step in which the subject raised, where contract or scenario allow that; else None."""
        fault = self.run.fault
        if fault is None or fault.kind != "raised":
            return None
        capabilities = self.reference.capabilities
        may_refuse = may_raise(
            self.scenario, capabilities, fault.step
        ) or refuses_plain_steps(self.scenario, capabilities)
        # Many synchronizers look for gradients that are not finite, and say so. Others say
        # that a collective took minutes.
        looks = overflows(self.scenario) or self.run.was_very_long
        return fault.step if may_refuse or (fault.is_clear and looks) else None

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


Check = Callable[[Judgement], Iterator[Violation]]


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
        count = step_plan.num_agreed_micro_batches(judgement.scenario, step)
        if micro_batch < count - 1:
            yield launch


def _cause(found: Violation) -> object:
    return found.cause


def merge(
    name: str,
    findings: Iterable[Violation],
    key: Callable[[Violation], object] = _cause,
) -> list[Violation]:
    """Return one violation per cause, or per another key, for the findings of one property.

    The first finding of a key gives summary and evidence; the others add their ranks
    and parameters.
    """
    by_key = dict[object, list[Violation]]()
    for each in findings:
        by_key.setdefault(key(each), []).append(each)
    return [
        replace(
            found[0],
            property=name,
            ranks=tuple(sorted({rank for each in found for rank in each.ranks})),
            parameters=tuple(
                dict.fromkeys(p for each in found for p in each.parameters)
            ),
            clues=functools.reduce(operator.or_, (each.clues for each in found)),
        )
        for found in by_key.values()
    ]
