"""Reported in pytorch/torchtitan#1733."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.bases.placements import reduce_groups
from syncverify.bugbank.entry import Entry


def contributors(parameter: nn.Parameter) -> int:
    """Count the ranks whose gradients are summed."""
    count = 1
    for group in reduce_groups(parameter):
        count *= group.size()
    return count


class ScalesInEveryMicroBatch(AveragedMainGrads):
    """The mean is taken of what has accumulated so far, in each micro-batch."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        super().on_accumulated(slot, parameter)
        slot.div_(contributors(parameter))

    @override
    def divisor(self, bucket: Bucket) -> int:
        return 1


ENTRY = Entry(
    subject=ScalesInEveryMicroBatch,
    twin=AveragedMainGrads,
    source="pytorch/torchtitan#1733",
    trigger="2 ranks, 2 micro-batches",
    silent=True,
    property="gradient_equals_reference",
    cause="scaled",
)
