"""The sum of earlier micro-batches is added to the reduced gradient.

Reported in pytorch/pytorch#125484.
"""

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.entry import reported


class KeepsEarlierSums(MainGrads):
    """Right: the sum of earlier micro-batches is added before anything is reduced."""

    @override
    def bind(self) -> None:
        self.earlier: dict[nn.Parameter, torch.Tensor] = {}
        super().bind()

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if self.moved[parameter]:
            self.earlier[parameter].add_(slot)
        else:
            self.earlier[parameter] = torch.zeros_like(slot)
        slot.copy_(local_grad(parameter))
        parameter.grad = None
        self.moved[parameter] += 1

    @override
    def reduce(self, bucket: Bucket) -> None:
        self.add_earlier(bucket)
        super().reduce(bucket)

    def add_earlier(self, bucket: Bucket) -> None:
        """Add the sums of all micro-batches but the last."""
        for parameter, slot in bucket.slots.items():
            slot.add_(self.earlier[parameter])


@reported(
    "pytorch/pytorch#125484",
    trigger="2 ranks, 2 micro-batches",
    violates="gradient_equals_reference",
    cause="rank_contribution_missing",
)
class AddsEarlierSumsAfterwards(KeepsEarlierSums):
    """The sum of earlier micro-batches is added to the reduced gradient."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        MainGrads.reduce(self, bucket)
        self.add_earlier(bucket)
