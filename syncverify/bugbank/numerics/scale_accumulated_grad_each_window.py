"""Each micro-batch divides all that has accumulated so far.

Reported in pytorch/torchtitan#1733.
"""

import math

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/torchtitan#1733",
    trigger="2 ranks, 2 micro-batches",
    violates="gradient_equals_reference",
    cause="scaled",
)
class ScalesInEveryMicroBatch(AveragedMainGrads):
    """Each micro-batch divides all that has accumulated so far."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        super().on_accumulated(slot, parameter)
        slot.div_(math.prod(group.size() for group in self.groups_of(parameter)))

    @override
    def divisor(self, bucket: Bucket) -> int:
        return 1
