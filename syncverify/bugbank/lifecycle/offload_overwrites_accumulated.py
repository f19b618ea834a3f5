"""Reported in pytorch/pytorch#73535."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.each_micro_batch import ReducesEachMicroBatch
from syncverify.bugbank.entry import Entry


class AddsOnHost(ReducesEachMicroBatch):
    """Right: what was reduced is added to a sum on the host."""

    @override
    def add(self, parameter: nn.Parameter, reduced: torch.Tensor) -> None:
        if parameter not in self.sums:
            self.sums[parameter] = torch.zeros_like(reduced, device="cpu")
        self.offload(reduced.cpu(), self.sums[parameter])

    def offload(self, reduced: torch.Tensor, summed: torch.Tensor) -> None:
        """Add up on the host."""
        summed.add_(reduced)


class OverwritesOnHost(AddsOnHost):
    """What was reduced takes the place of the sum on the host."""

    @override
    def offload(self, reduced: torch.Tensor, summed: torch.Tensor) -> None:
        summed.copy_(reduced)


ENTRY = Entry(
    subject=OverwritesOnHost,
    twin=AddsOnHost,
    source="pytorch/pytorch#73535",
    trigger="2 micro-batches that are reduced each",
    silent=True,
    property="unreduced_stay_local",
    cause="micro_batch_missing",
)
