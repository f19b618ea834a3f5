"""Synchronizers with right gradients that keep more and more, where it is easily overlooked."""

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from studies.redteam.wrong.leftovers import (
    GrowsAHistory,
    KeepsEveryOtherWork,
    KeepsNormsInAGlobal,
    MakesAGroupEachStep,
    RemembersEachStep,
)
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from tests.quality.planted.planted import plant, planted, right
from tests.quality.planted.remains import SHOWN, SIX_STEPS

PILES_UP = ("memory_does_not_pile_up", "piles_up")


def noted(gradients: torch.Tensor, notes: list[Any] = []) -> None:  # noqa: B006  # the defect
    notes.append(gradients.clone())


def counted(gradients: torch.Tensor) -> None:
    counted.seen = [*getattr(counted, "seen", ()), gradients.clone()]  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=3)
def copy_of_late(gradients: torch.Tensor, step: int) -> torch.Tensor:
    return gradients + step


class CountsSteps(ViewBuckets):
    """Hands the first bucket's gradients of each step to `use()`."""

    capabilities = Capabilities(varying_accumulations=True)

    def bind(self) -> None:
        super().bind()
        self.step = 0

    def wait(self) -> None:
        super().wait()
        self.step += 1
        self.use(self.buckets[0].buffer)

    def use(self, gradients: torch.Tensor) -> None:
        raise NotImplementedError


@planted(PILES_UP, **SHOWN)
class KeepsInADefault(CountsSteps):
    """The default value of an argument is a list that becomes longer."""

    def use(self, gradients: torch.Tensor) -> None:
        noted(gradients)


@planted(PILES_UP, **SHOWN)
class KeepsOnAFunction(CountsSteps):
    """An attribute of a function becomes longer."""

    def use(self, gradients: torch.Tensor) -> None:
        counted(gradients)


@right(SIX_STEPS)
class KeepsAFewInACache(CountsSteps):
    """Right: a cache of three results."""

    def use(self, gradients: torch.Tensor) -> None:
        copy_of_late(gradients, self.step)


@right(SIX_STEPS)
class MakesGroupsForAStep(CountsSteps):
    """Right, though slow: the group of a step is destroyed at its end."""

    def use(self, gradients: torch.Tensor) -> None:
        dist.destroy_process_group(dist.new_group([*range(dist.get_world_size())]))


@planted(PILES_UP, **SHOWN)
class KeepsHandles(ViewBuckets):
    """Handles of all steps are kept."""

    works: Any = None

    def made(self) -> Any:
        return []

    def bind(self) -> None:
        super().bind()
        self.works = self.made()

    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        self.works.append(bucket.work)


@planted(PILES_UP, **SHOWN)
class KeepsHandlesInClosure(KeepsHandles):
    """Handles of all steps are kept, where no attribute shows them."""

    def made(self) -> Any:
        kept: list[dist.Work | None] = []

        def keep(work: dist.Work | None) -> None:
            kept.append(work)

        @dataclass
        class Log:
            append: Callable[[dist.Work | None], None]

        return Log(keep)


@right(SIX_STEPS)
class KeepsFewHandles(KeepsHandles):
    """Right: handles of the last collectives are kept."""

    def made(self) -> Any:
        return deque(maxlen=100)


@right(SIX_STEPS)
class KeepsAFewSteps(ViewBuckets):
    """Right: a ring of four copies, and a view that becomes longer in memory that does not."""

    def bind(self) -> None:
        super().bind()
        self.ring: list[torch.Tensor] = []
        self.memory = torch.zeros(100)
        self.norms = self.memory[:0]

    def wait(self) -> None:
        super().wait()
        self.ring = [*self.ring[-3:], self.buckets[0].buffer.clone()]
        self.norms = self.memory[: self.norms.numel() + 1]


OTHERS = [
    plant(subject, PILES_UP, **SHOWN)
    for subject in (
        *(RemembersEachStep, MakesAGroupEachStep, KeepsEveryOtherWork),
        *(KeepsNormsInAGlobal, GrowsAHistory),
    )
]


# Memory that a synchronizer reduces and never filled, and a right one beside it.


_PADDING_NUMEL = 3


@planted(
    ("memory_is_written_before_it_is_read", "read_unwritten"), scenarios=(SIX_STEPS,)
)
class ReducesUnfilledStaging(ViewBuckets):
    """Reduces a staging buffer to which the gradients were not copied."""

    staged: torch.Tensor

    def launch(self, bucket: Bucket) -> None:
        self.stage(bucket)
        for group in bucket.groups:
            dist.all_reduce(self.staged, group=group)
        numel = bucket.buffer.numel()
        bucket.buffer.copy_(self.staged[:numel])

    def stage(self, bucket: Bucket) -> None:
        """Allocate the staging buffer."""
        numel = bucket.buffer.numel() + _PADDING_NUMEL
        self.staged = torch.empty(numel, dtype=bucket.buffer.dtype)


@right(SIX_STEPS)
class ReducesPadding(ReducesUnfilledStaging):
    """Right: nothing is ever written to the padding, and nothing reads it after the reduction."""

    def stage(self, bucket: Bucket) -> None:
        super().stage(bucket)
        numel = bucket.buffer.numel()
        self.staged[:numel].copy_(bucket.buffer)
