"""Synchronizers with right gradients that leave something behind, or hold more and more."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import get_gradient_edge
from typing_extensions import override

from studies.redteam.wrong.leftovers import LeavesMainGrad, LeavesPlacesInBuckets
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.scenario.contract import Capabilities
from tests.quality.planted import growth, process_changes
from tests.quality.planted.planted import planted

GROWTH = "memory_does_not_pile_up"
CAP = "bucket_fits_the_cap"
UNBIND = "unbind_restores_parameters"


class HooksNodes(ViewBuckets):
    """Hooks on nodes of the graph are removed only by chance, with their nodes."""

    @override
    def bind(self) -> None:
        super().bind()
        for parameter in filter(lambda p: p.requires_grad, *self.param_groups):
            node = get_gradient_edge(parameter).node
            parameter.kept_alive = node
            node.register_hook(lambda *_: None)


class RemovesEveryHook(ViewBuckets):
    """`unbind()` clears the dictionary of hooks."""

    @override
    def unbind(self) -> None:
        for group in self.param_groups:
            for parameter in group:
                (parameter._post_accumulate_grad_hooks or {}).clear()
        super().unbind()


class JoinsParameters(ViewBuckets):
    """Parameters of a bucket move into one storage, and stay there."""

    @override
    def bind(self) -> None:
        super().bind()
        for bucket in self.buckets:
            parts = [local(parameter) for parameter in bucket.parameters]
            flat = torch.cat([part.reshape(-1) for part in parts])
            pieces = flat.split([part.numel() for part in parts])
            for parameter, piece, part in zip(
                bucket.parameters, pieces, parts, strict=True
            ):
                if type(parameter) is nn.Parameter:
                    parameter.data = piece.view(part.shape)


class SeedsTorch(ViewBuckets):
    """All ranks are made to draw the same numbers."""

    @override
    def bind(self) -> None:
        super().bind()
        torch.manual_seed(7)


class SeedsPython(ViewBuckets):
    """An order is drawn from a generator that belongs to the training program."""

    @override
    def wait(self) -> None:
        random.seed(7)
        super().wait()


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


class ChangesDefaultDtype(ViewBuckets):
    """The default dtype is set, and not set back."""

    @override
    def bind(self) -> None:
        super().bind()
        torch.set_default_dtype(torch.bfloat16)


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


class KeepsEveryOtherHandle(KeepsHandles):
    """Handles of each second step are kept."""

    step = 0

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if self.step % 2:
            self.handles.pop()

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.step += 1


ALL_COPIES: list[torch.Tensor] = []


class KeepsInAGlobal(ViewBuckets):
    """A list of the module keeps a copy of each step."""

    @override
    def wait(self) -> None:
        super().wait()
        ALL_COPIES.append(self.buckets[0].buffer.clone())


class GrowsAHistory(ViewBuckets):
    """One tensor becomes longer in each step."""

    @override
    def bind(self) -> None:
        super().bind()
        self.norms = torch.zeros(0)

    @override
    def wait(self) -> None:
        super().wait()
        self.norms = torch.cat([self.norms, torch.zeros(100)])


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


class CountsCapInElements(ViewBuckets):
    """A cap in bytes is compared with a number of elements."""

    capabilities = Capabilities(varying_accumulations=True, keeps_bucket_cap=True)

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        self.cap_bytes *= 4
        yield from super().plan()


class KeepsCap(ViewBuckets):
    """Right: a bucket is closed before it is too large."""

    capabilities = Capabilities(varying_accumulations=True, keeps_bucket_cap=True)


REMAINS = [
    planted(HooksNodes, (UNBIND, "hook_left")),
    planted(RemovesEveryHook, (UNBIND, "hook_lost")),
    planted(LeavesMainGrad, (UNBIND, "attribute_left")),
    planted(JoinsParameters, (UNBIND, "parameters_joined")),
    planted(SeedsTorch, (UNBIND, "generator_seeded")),
    planted(SeedsPython, (UNBIND, "generator_seeded")),
    planted(ChangesDefaultDtype, (UNBIND, "setting_changed")),
    planted(ChangesPrecision, (UNBIND, "setting_changed")),
    planted(ReplacesBackward, (UNBIND, "hook_left")),
    planted(KeepsHandles, (GROWTH, "piles_up")),
    planted(KeepsHandlesInClosure, (GROWTH, "piles_up")),
    planted(LeavesPlacesInBuckets, (UNBIND, "attribute_left")),
    planted(KeepsEveryOtherHandle, (GROWTH, "piles_up")),
    planted(KeepsInAGlobal, (GROWTH, "piles_up")),
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
