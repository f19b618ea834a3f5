"""A property, the judgement of a run that its check takes, and violations joined from findings."""

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from typing import Any, Final, TypeVar

from typing_extensions import override

from syncverify.judge.properties.sent import Sent, sent_by
from syncverify.judge.reference import Reference
from syncverify.judge.traced import Traced, launches_of
from syncverify.judge.violation import Violation
from syncverify.scenario import step_plan
from syncverify.scenario.features import overflows, refusable_features
from syncverify.scenario.layout import local_shape
from syncverify.scenario.scenario import Scenario
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import CollectiveLaunch, TraceRecord
from syncverify.trace.run import Observation, ObservationPoint, RankRun, Run, Trace


@dataclass(frozen=True)
class Judgement(Traced):
    """A run beside its reference."""

    scenario: Scenario
    run: Run
    reference: Reference
    again: Run | None = None  # a second run of the same scenario and schedule

    @property
    @override
    def is_for_nccl(self) -> bool:
        return self.reference.capabilities.is_for_nccl

    @property
    def traces(self) -> Iterator[list[TraceRecord]]:
        """The trace of each rank."""
        return (rank_run.trace for rank_run in self.run.ranks)

    def has(self, kind: type[TraceRecord]) -> bool:
        """Tell whether the trace of a rank has a record of a kind."""
        return any(isinstance(record, kind) for record in self.records)

    @property
    def records(self) -> Iterator[TraceRecord]:
        """The traces of all ranks, one after the other."""
        return chain.from_iterable(self.traces)

    def seen(self, point: ObservationPoint) -> Iterator[tuple[int, Observation]]:
        """Yield the rank and each observation of gradients at a point."""
        for rank, rank_run in enumerate(self.run.ranks):
            yield from ((rank, e) for e in rank_run.observations if e.point == point)

    def was_seen(self, point: ObservationPoint) -> bool:
        """Tell whether a rank read its gradients at a point."""
        return any(self.seen(point))

    @property
    def has_owners(self) -> bool:
        """Tell whether each gradient is right on its owner alone."""
        return self.reference.capabilities.gradients == "owner"

    def sent(self, rank: int, launch: CollectiveLaunch) -> Sent:
        """Return what a rank sends by a launch."""
        return sent_by(self.reference, rank, launch)

    def numel(self, name: str, rank: int) -> int:
        """Count the elements of a rank's part of a gradient; 0 of a frozen parameter."""
        mesh, trained = self.scenario.mesh, self.scenario.trainable
        shapes = (local_shape(mesh, e, rank) for e in trained if e.name == name)
        return sum(map(math.prod, shapes))

    @property
    def refused_step(self) -> int | None:
        """The step in which the subject raised, where contract or scenario allow that; else None."""
        fault, promises = self.run.fault, self.reference.capabilities
        if fault is None or fault.kind != "raised":
            return None
        may_refuse = any(refusable_features(self.scenario, promises, fault.step))
        # Many synchronizers look for gradients that are not finite, and say so. Others say
        # that a collective took minutes.
        looks = overflows(self.scenario) or self.run.was_very_long
        return fault.step if may_refuse or (fault.is_clear and looks) else None

    def was_refused(self, step: int) -> bool:
        """Tell whether the subject refused a step; the gradients of that step are not used."""
        return step == self.refused_step

    @override
    def _judged_records(self, rank_run: RankRun) -> Trace:
        """Return the trace of a rank without the refused step, whose gradients are not used."""
        refused = self.refused_step
        trace = rank_run.trace
        return [e for e in trace if refused is None or e.moment.step < refused]


class Needs(Enum):
    """What a property judges; the value says what its check takes."""

    RUN = "what ranks of any program did, a `Traced`"
    REFERENCE = "the run of a scenario beside its reference, a `Judgement`"
    VALUES = "values of a training beside right ones, and how it was played"


_Check = TypeVar("_Check", bound=Callable[..., Iterable[Any]])
# All properties of the modules that were imported; `registry.py` imports all modules.
DECLARED: Final = list["Property"]()


@dataclass(slots=True, kw_only=True, eq=False)
class Property:
    """A named guarantee, declared above the function that checks it.

    The name of the check is that of the property, its docstring the specification.
    """

    # Yields findings: places where the property does not hold.
    check: Callable[..., Iterable[Any]] = field(init=False)
    needs: Needs = Needs.REFERENCE  # what `check` takes
    order: int  # place in a report, another one for each property
    condition: str  # says in one sentence when there is something to judge
    applies: Callable[[Judgement], bool] = lambda _: True  # tells that of a scenario
    example: str  # one of the bugs that the property catches
    needs_data: bool = True  # collectives that move data, and accesses to memory
    # Field of `Capabilities` without which nothing is judged; "" for none.
    promise: str = ""
    # Properties that the same defect then violates, directly.
    leads_to: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()  # properties whose defects violate this one too
    never_gives: tuple[str, ...] = ()  # causes of other properties that it cannot have
    # Whether it compares numbers of gradients, so that a vague cause of it gives way to a precise
    # one of another such property.
    is_about_values: bool = False
    # Finds violations in what ranks of any program did, a `Traced`; None where only a scenario
    # tells what is right.
    in_any_program: Callable[[Any], Iterable[Violation]] | None = None
    is_of_scenarios: bool = True  # whether `check` judges scenarios

    def __call__(self, check: _Check) -> _Check:
        """Declare the property that a function checks."""
        self.check = check
        if self.needs is Needs.RUN:
            self.in_any_program = check
        self.is_of_scenarios &= self.needs is not Needs.VALUES
        DECLARED.append(self)
        return check

    @property
    def name(self) -> str:
        """Return the name used in reports, docs and tests."""
        return self.check.__name__

    @property
    def statement(self) -> str:
        """Return the guarantee in one sentence."""
        return first_line(self.check)


def first_line(function: Callable[..., object]) -> str:
    """Return the first line of a docstring; "" if there is none."""
    return (inspect.getdoc(function) or "").partition("\n")[0]


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


def merge(
    name: str,
    findings: Iterable[Violation],
    key: Callable[[Violation], object] = operator.attrgetter("cause"),
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
            parameters=(*dict.fromkeys(p for each in found for p in each.parameters),),
            clues=functools.reduce(operator.or_, (each.clues for each in found)),
        )
        for found in by_key.values()
    ]
