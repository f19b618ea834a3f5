"""Reported in NVIDIA/Megatron-LM#5337."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.contracts import only
from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.entry import Entry


class ReducesContiguous(MainGrads):
    """Right: what is not contiguous is reduced as a copy, and copied back."""

    outside = only("memory_format=transposed")

    @override
    def wait(self) -> None:
        for parameter in self.trainable():
            for group in self.groups_of(parameter):
                self.reduce_part(local_grad(parameter), group)

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        pass

    def reduce_part(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Reduce a gradient in its place."""
        reduced = part.contiguous()
        dist.all_reduce(reduced, group=group)
        part.copy_(reduced)


class DropsReducedCopy(ReducesContiguous):
    """What is not contiguous is reduced as a copy, which is then forgotten."""

    @override
    def reduce_part(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        dist.all_reduce(part.contiguous(), group=group)


ENTRY = Entry(
    subject=DropsReducedCopy,
    twin=ReducesContiguous,
    source="NVIDIA/Megatron-LM#5337",
    trigger="2 ranks, a transposed parameter",
    silent=True,
    property="gradient_equals_reference",
    cause="rank_contribution_missing",
)
