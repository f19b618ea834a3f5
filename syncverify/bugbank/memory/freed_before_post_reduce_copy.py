"""The result is freed when the function returns, and its copy is still to come.

Reported in pytorch/pytorch#180665.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class CopiesResultAside(SideStreams):
    """Right: a third stream copies the result, which its allocator knows."""

    @override
    def bind(self) -> None:
        self.copier = torch.cuda.Stream()
        super().bind()

    @override
    def launch(self, bucket: Bucket) -> None:
        self.fork()
        with torch.cuda.stream(self.comm):
            reduced = bucket.buffer.clone()
            for group in bucket.groups:
                dist.all_reduce(reduced, group=group)
        self.copier.wait_stream(self.comm)
        with torch.cuda.stream(self.copier):
            bucket.buffer.copy_(reduced)
        self.keep(reduced)

    def keep(self, reduced: torch.Tensor) -> None:
        """Keep the memory until it is used no more."""
        reduced.record_stream(self.copier)

    @override
    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.copier)


@reported(
    "pytorch/pytorch#180665",
    trigger="2 ranks, 2 buckets, results copied on a third stream",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
    uses_streams=True,
)
class FreesResultEarly(CopiesResultAside):
    """The result is freed when the function returns, and its copy is still to come."""

    @override
    def keep(self, reduced: torch.Tensor) -> None:
        pass
