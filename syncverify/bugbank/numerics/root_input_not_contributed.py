"""Reported in meta-pytorch/torchcomms#477."""

from __future__ import annotations

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import Entry


class ReducesToRoot(MainGrads):
    """Right: one rank of each group sums up, and sends the sum to the others."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups:
            output = self.output(bucket.buffer, is_root=group.rank() == 0)
            dist.reduce(output, group=group, group_dst=0)
            dist.broadcast(output, group=group, group_src=0)
            bucket.buffer.copy_(output)

    def output(self, gradient: torch.Tensor, *, is_root: bool) -> torch.Tensor:
        """Return the memory in which the root sums up; it holds the rank's own part."""
        return gradient.clone()


class ForgetsInputOfRoot(ReducesToRoot):
    """The root sums into memory of its own, and does not put its own part there."""

    @override
    def output(self, gradient: torch.Tensor, *, is_root: bool) -> torch.Tensor:
        return torch.zeros_like(gradient) if is_root else gradient.clone()


ENTRY = Entry(
    subject=ForgetsInputOfRoot,
    twin=ReducesToRoot,
    source="meta-pytorch/torchcomms#477",
    trigger="2 ranks",
    silent=True,
    property="gradient_equals_reference",
    cause="rank_contribution_missing",
)
