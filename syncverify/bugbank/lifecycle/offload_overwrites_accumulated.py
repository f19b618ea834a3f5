"""Reduced gradients replace the sum on the host.

Reported in pytorch/pytorch#73535.
"""

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.each_micro_batch import ReducesEachMicroBatch
from syncverify.bugbank.entry import reported


class AddsOnHost(ReducesEachMicroBatch):
    """Right: reduced gradients are added to a sum on the host."""

    @override
    def add(self, parameter: nn.Parameter, reduced: torch.Tensor) -> None:
        if parameter not in self.sums:
            self.sums[parameter] = torch.zeros_like(reduced, device="cpu")
        self.offload(reduced.cpu(), self.sums[parameter])

    def offload(self, reduced: torch.Tensor, summed: torch.Tensor) -> None:
        """Add up on the host."""
        summed.add_(reduced)


@reported(
    "pytorch/pytorch#73535",
    trigger="2 micro-batches that are reduced each",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class OverwritesOnHost(AddsOnHost):
    """Reduced gradients replace the sum on the host."""

    @override
    def offload(self, reduced: torch.Tensor, summed: torch.Tensor) -> None:
        summed.copy_(reduced)
