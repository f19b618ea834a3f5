"""A temporary goes back to its pool while the other stream still uses it.

Reported in deepspeedai/DeepSpeed#7965.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class ReducesCopy(SideStreams):
    """Right: a copy is reduced, and lives until it is copied back."""

    @override
    def launch(self, bucket: Bucket) -> None:
        copy = bucket.buffer.clone()
        self.fork()
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(copy, group=group)
            bucket.buffer.copy_(copy)
        self.keep(copy)

    def keep(self, copy: torch.Tensor) -> None:
        """Keep the memory until it is used no more."""
        copy.record_stream(self.comm)


@reported(
    "deepspeedai/DeepSpeed#7965",
    trigger="2 ranks, a temporary that a side stream reduces",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
    uses_streams=True,
)
class DropsCopy(ReducesCopy):
    """A temporary goes back to its pool while the other stream still uses it."""

    @override
    def keep(self, copy: torch.Tensor) -> None:
        pass
