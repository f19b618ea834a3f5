"""All facts about one wrong gradient, for the functions that look for its mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.overflow import same_values
from syncverify.judge.properties.judgement import launches_of_step
from syncverify.trace.records import (
    CollectiveLaunch,
    Moment,
    Phase,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Observation


@dataclass(frozen=True)  # without slots: `cached_property` needs a dictionary
class GradientFacts:
    """A wrong gradient, and the trace of its rank.

    Attributes:
        observed: The wrong gradient; shape of the local part.
        kind: Kind of the cause that the value tells.
        trace: Trace of the rank, up to the observation.
        earlier: Observations of the rank before this one.
        gradients: All gradients of the rank at this moment, by parameter.
    """

    expected: ExpectedGradient
    observed: torch.Tensor
    kind: str
    trace: Sequence[TraceRecord]
    earlier: Sequence[Observation]
    gradients: Mapping[str, torch.Tensor | None]

    @cached_property
    def launches(self) -> list[CollectiveLaunch]:
        """Collectives of the step over two ranks or more."""
        return launches_of_step(self.trace, self.expected.step)

    @cached_property
    def reductions(self) -> list[CollectiveLaunch]:
        """Reductions of the step that name the parameter."""
        name = self.expected.spec.name
        return [e for e in self.launches if name in e.parameters and e.reduces]

    @cached_property
    def is_own(self) -> bool:
        """Tell whether it is the rank's local gradient, where other ranks had to contribute."""
        if self.kind != "rank_contribution_missing":
            return False
        own = self.expected.part(self.expected.rank)
        return any(self.equals(own / by) for by in {1, self.expected.divisor})

    @cached_property
    def is_unsent(self) -> bool:
        """Tell whether it is the rank's local gradient, and no launch of the step names it."""
        name = self.expected.spec.name
        is_named = any(name in record.parameters for record in self.launches)
        return not is_named and self.is_own

    @cached_property
    def returns(self) -> list[SubjectReturn]:
        """Returns of the subject's calls, each with the memory of all gradients."""
        return [each for each in self.trace if isinstance(each, SubjectReturn)]

    @cached_property
    def region_after_each_call(self) -> list[tuple[Moment, MemoryRegion | None]]:
        """Memory of `.grad` at the return of each call; None where there was no gradient."""
        name = self.expected.spec.name
        return [(each.moment, each.gradients.get(name)) for each in self.returns]

    def equals(self, value: torch.Tensor) -> bool:
        """Tell whether a value, cast to the observed dtype, is the observed gradient."""
        return same_values(self.observed, value.to(self.observed.dtype))


def until(
    observation: Observation, trace: Sequence[TraceRecord]
) -> Sequence[TraceRecord]:
    """Return the records up to the return of the call before an observation; none if it never came."""
    phase: Phase = "wait" if observation.micro_batch is None else "backward"
    call = Moment(phase, observation.step, observation.micro_batch)
    returned = [
        index
        for index, record in enumerate(trace)
        if isinstance(record, SubjectReturn) and record.moment == call
    ]
    return trace[: returned[-1] + 1] if returned else ()


def memory(name: str, launch: CollectiveLaunch) -> Iterator[MemoryRegion]:
    """Yield the bytes from the first to the last one of a gradient in a contribution."""
    offset_bytes = 0
    for region in launch.regions:
        end_byte = region.end_byte - region.start_byte + offset_bytes
        for slot in launch.slots:
            if slot.parameter == name and offset_bytes <= slot.offset_bytes < end_byte:
                start = region.start_byte + slot.offset_bytes - offset_bytes
                yield MemoryRegion(region.storage, start, start + slot.num_bytes)
        offset_bytes = end_byte


def where(launch: CollectiveLaunch) -> str:
    """Return the line and the moment of a launch."""
    return f"at {launch.source} ({launch.moment})"
