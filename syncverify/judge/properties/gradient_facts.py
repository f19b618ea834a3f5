"""All facts about one wrong gradient, for the functions that look for its mechanism."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from syncverify.judge.decoding import same_values
from syncverify.judge.properties.judgement import launches_of_step
from syncverify.judge.properties.sent import Sent, sent_by
from syncverify.judge.reference import ExpectedGradient
from syncverify.trace.records import (
    CollectiveLaunch,
    Moment,
    Phase,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Observation, RankRun, Trace


@dataclass(frozen=True)  # without slots: `cached_property` needs a dictionary
class GradientFacts:
    """A wrong gradient, and what its rank did until it was read."""

    expected: ExpectedGradient
    observation: Observation
    observed: torch.Tensor  # the wrong gradient; shape of the local part
    kind: str  # of the cause that the value tells
    rank_run: RankRun

    @property
    def name(self) -> str:
        """Name of the parameter."""
        return self.expected.spec.name

    @property
    def rank(self) -> int:
        """Rank that holds the gradient."""
        return self.expected.rank

    @property
    def own_words(self) -> str:
        """Say that the gradient is the rank's own; see `is_own`."""
        return f"it is rank {self.rank}'s own gradient"

    @cached_property
    def trace(self) -> Trace:
        """Records up to the return of the call before the observation; none if it never came."""
        seen, trace = self.observation, self.rank_run.trace
        phase: Phase = "wait" if seen.micro_batch is None else "backward"
        call = Moment(phase, seen.step, seen.micro_batch)
        for index, record in reversed([*enumerate(trace, start=1)]):
            if isinstance(record, SubjectReturn) and record.moment == call:
                return trace[:index]
        return ()

    @cached_property
    def launches(self) -> list[CollectiveLaunch]:
        """Collectives of the step over two ranks or more."""
        return launches_of_step(self.trace, self.expected.step)

    @cached_property
    def reductions(self) -> list[CollectiveLaunch]:
        """Reductions of the step that name the parameter."""
        return [e for e in self.launches if self.name in e.parameters and e.reduces]

    @cached_property
    def sent_reductions(self) -> list[CollectiveLaunch]:
        """Reductions of the step that send the gradient, by its name or by its values."""
        return [e for e in self.launches if e.reduces and self.name in self.senders(e)]

    @cached_property
    def is_own(self) -> bool:
        """Tell whether it is the rank's local gradient, where other ranks had to contribute."""
        if self.kind != "rank_contribution_missing":
            return False
        own = self.expected.part(self.rank)
        return any(self.equals(own / by) for by in {1, self.expected.divisor})

    @cached_property
    def is_unsent(self) -> bool:
        """Tell whether it is the rank's local gradient, and no launch of the step names it."""
        is_named = any(self.name in record.parameters for record in self.launches)
        return not is_named and self.is_own

    @cached_property
    def returns(self) -> list[SubjectReturn]:
        """Returns of the subject's calls, each with the memory of all gradients."""
        return [each for each in self.trace if isinstance(each, SubjectReturn)]

    @cached_property
    def region_after_each_call(self) -> list[tuple[Moment, MemoryRegion | None]]:
        """Memory of `.grad` at the return of each call; None where there was no gradient."""
        return [(each.moment, each.gradients.get(self.name)) for each in self.returns]

    def senders(self, launch: CollectiveLaunch) -> tuple[str, ...]:
        """Name the parameters whose gradients a launch sends; none if some value is unknown."""
        return self.sent(launch).names or ()

    def sent(self, launch: CollectiveLaunch) -> Sent:
        """Return what the rank sends by a launch."""
        return sent_by(self.expected.reference, self.rank, launch)

    def equals(self, value: torch.Tensor) -> bool:
        """Tell whether a value, cast to the observed dtype, is the observed gradient."""
        return same_values(self.observed, value.to(self.observed.dtype))

    def is_whole_in(self, launch: CollectiveLaunch) -> bool:
        """Tell whether a contribution has the gradient from its first byte to its last."""
        num_bytes = sum(e.end_byte - e.start_byte for e in launch.regions)
        own = (slot for slot in launch.slots if slot.parameter == self.name)
        return any(e.offset_bytes >= 0 and e.end_byte <= num_bytes for e in own)

    def memory(self, launch: CollectiveLaunch) -> Iterator[MemoryRegion]:
        """Yield the bytes from the first to the last one of the gradient in a contribution."""
        offset_bytes = 0
        for region in launch.regions:
            end_byte = region.end_byte - region.start_byte + offset_bytes
            for slot in launch.slots:
                is_here = offset_bytes <= slot.offset_bytes < end_byte
                if slot.parameter == self.name and is_here:
                    start = region.start_byte + slot.offset_bytes - offset_bytes
                    yield MemoryRegion(region.storage, start, start + slot.num_bytes)
            offset_bytes = end_byte


def where(launch: CollectiveLaunch) -> str:
    """Return the line and the moment of a launch."""
    return f"at {launch.source} ({launch.moment})"


def before(
    launch: CollectiveLaunch, trace: Iterable[TraceRecord]
) -> Iterator[TraceRecord]:
    """Yield the records before a launch."""
    return itertools.takewhile(lambda record: record is not launch, trace)


def since(
    launch: CollectiveLaunch, trace: Iterable[TraceRecord]
) -> Iterator[TraceRecord]:
    """Yield a launch and the records after it."""
    return itertools.dropwhile(lambda record: record is not launch, trace)
