"""A synchronizer that reduces memory that it never filled, and a right one beside it."""

import torch
import torch.distributed as dist

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from tests.quality.planted.planted import planted, right
from tests.quality.planted.remains import SIX_STEPS

_PADDING_NUMEL = 3


@planted(
    ("memory_is_written_before_it_is_read", "read_unwritten"), scenarios=(SIX_STEPS,)
)
class ReducesUnfilledStaging(ViewBuckets):
    """Reduces a staging buffer to which the gradients were not copied."""

    staged: torch.Tensor

    def launch(self, bucket: Bucket) -> None:
        self.stage(bucket)
        for group in bucket.groups:
            dist.all_reduce(self.staged, group=group)
        numel = bucket.buffer.numel()
        bucket.buffer.copy_(self.staged[:numel])

    def stage(self, bucket: Bucket) -> None:
        """Allocate the staging buffer."""
        numel = bucket.buffer.numel() + _PADDING_NUMEL
        self.staged = torch.empty(numel, dtype=bucket.buffer.dtype)


@right(SIX_STEPS)
class ReducesPadding(ReducesUnfilledStaging):
    """Right: nothing is ever written to the padding, and nothing reads it after the reduction."""

    def stage(self, bucket: Bucket) -> None:
        super().stage(bucket)
        numel = bucket.buffer.numel()
        self.staged[:numel].copy_(bucket.buffer)
