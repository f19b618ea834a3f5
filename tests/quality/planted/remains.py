"""Synchronizers with right gradients that leave something behind, or hold more and more."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.wrong.bucket_size import CapsInElements
from studies.redteam.wrong.hooks import RemovesAllHooks
from studies.redteam.wrong.leftovers import (
    ChangesTheDefault,
    GrowsAHistory,
    KeepsEveryOtherWork,
    KeepsNormsInAGlobal,
    LeavesFlatParameters,
    LeavesMainGrad,
    LeavesNodeHooks,
    LeavesPlacesInBuckets,
    SeedsEveryone,
    SeedsPython,
)
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.scenario.contract import Capabilities
from tests.quality.planted import growth, process_changes
from tests.quality.planted.bank import UNBIND
from tests.quality.planted.planted import planted

GROWTH = "memory_does_not_pile_up"
CAP = "bucket_fits_the_cap"


class DrawsNumbers(ViewBuckets):
    """Right: numbers may be drawn, and a seed may be set for the length of a block."""

    @override
    def wait(self) -> None:
        torch.rand(10)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            torch.rand(1)
        state = random.getstate()
        random.seed(7)
        random.setstate(state)
        for _ in range(1000):
            random.random()
        super().wait()


class ChangesPrecision(ViewBuckets):
    """The precision of matrix products is lowered, and not raised again."""

    @override
    def bind(self) -> None:
        super().bind()
        torch.set_float32_matmul_precision("medium")


def replace_backward() -> None:
    """Count backwards of tensors, if they are not counted already."""
    own = torch.Tensor.backward
    if hasattr(own, "count"):
        return

    def backward(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        backward.count += 1
        own(tensor, *args, **kwargs)

    backward.count = 0
    torch.Tensor.backward = backward


class ReplacesBackward(ViewBuckets):
    """A method of torch is replaced, and stays."""

    @override
    def bind(self) -> None:
        super().bind()
        replace_backward()


class ChangesDtypeForABlock(ViewBuckets):
    """Right: the default dtype is set back."""

    @override
    def wait(self) -> None:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        super().wait()
        torch.set_default_dtype(before)


class KeepsHandles(ViewBuckets):
    """Handles of all steps are kept."""

    handles: Any = None

    def made(self) -> Any:
        return []

    @override
    def bind(self) -> None:
        super().bind()
        self.handles = self.made()

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        self.handles.append(bucket.work)


class KeepsHandlesInClosure(KeepsHandles):
    """Handles of all steps are kept, where no attribute shows them."""

    @override
    def made(self) -> Any:
        kept: list[dist.Work | None] = []

        def keep(work: dist.Work | None) -> None:
            kept.append(work)

        @dataclass
        class Log:
            append: Callable[[dist.Work | None], None]

        return Log(keep)


class KeepsFewHandles(KeepsHandles):
    """Right: handles of the last collectives are kept."""

    @override
    def made(self) -> Any:
        return deque(maxlen=100)


class KeepsAFewSteps(ViewBuckets):
    """Right: a ring of four copies, and a view that becomes longer in memory that does not."""

    @override
    def bind(self) -> None:
        super().bind()
        self.ring: list[torch.Tensor] = []
        self.memory = torch.zeros(100)
        self.norms = self.memory[:0]

    @override
    def wait(self) -> None:
        super().wait()
        self.ring = [*self.ring[-3:], self.buckets[0].buffer.clone()]
        self.norms = self.memory[: self.norms.numel() + 1]


class CountsCapInElements(CapsInElements):
    """It promises to keep the cap."""

    capabilities = Capabilities(varying_accumulations=True, keeps_bucket_cap=True)


class KeepsCap(ViewBuckets):
    """Right: a bucket is closed before it is too large."""

    capabilities = Capabilities(varying_accumulations=True, keeps_bucket_cap=True)


REMAINS = [
    planted(LeavesNodeHooks, (UNBIND, "hook_left")),
    planted(RemovesAllHooks, (UNBIND, "hook_lost")),
    planted(LeavesMainGrad, (UNBIND, "attribute_left")),
    planted(LeavesFlatParameters, (UNBIND, "parameters_joined")),
    planted(SeedsEveryone, (UNBIND, "generator_seeded")),
    planted(SeedsPython, (UNBIND, "generator_seeded")),
    planted(ChangesTheDefault, (UNBIND, "setting_changed")),
    planted(ChangesPrecision, (UNBIND, "setting_changed")),
    planted(ReplacesBackward, (UNBIND, "hook_left")),
    planted(KeepsHandles, (GROWTH, "piles_up")),
    planted(KeepsHandlesInClosure, (GROWTH, "piles_up")),
    planted(LeavesPlacesInBuckets, (UNBIND, "attribute_left")),
    planted(KeepsEveryOtherWork, (GROWTH, "piles_up")),
    planted(KeepsNormsInAGlobal, (GROWTH, "piles_up")),
    planted(GrowsAHistory, (GROWTH, "piles_up")),
    *(planted(each, (GROWTH, "piles_up")) for each in growth.GROWING),
    *(planted(each, (UNBIND, "generator_seeded")) for each in process_changes.SEEDING),
    *(
        planted(each, (UNBIND, "generator_rewound"))
        for each in process_changes.REWINDING
    ),
    *(planted(each, (UNBIND, "setting_changed")) for each in process_changes.CHANGING),
]
RIGHT = [
    ViewBuckets,
    DrawsNumbers,
    ChangesDtypeForABlock,
    KeepsFewHandles,
    KeepsAFewSteps,
    *growth.RIGHT,
    *process_changes.RIGHT,
]
