"""The root sums into new memory, without its own part.

Reported in meta-pytorch/torchcomms#477.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


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


@reported(
    "meta-pytorch/torchcomms#477",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="rank_contribution_missing",
)
class ForgetsInputOfRoot(ReducesToRoot):
    """The root sums into new memory, without its own part."""

    @override
    def output(self, gradient: torch.Tensor, *, is_root: bool) -> torch.Tensor:
        return torch.zeros_like(gradient) if is_root else gradient.clone()
