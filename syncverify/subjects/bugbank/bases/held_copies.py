"""A copy of each bucket is reduced on the side stream."""

from __future__ import annotations

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket


class HoldsCopies(SideStreams):
    """Copies are held until the stream that allocated them has waited."""

    @override
    def bind(self) -> None:
        super().bind()
        self.held: list[tuple[Bucket, torch.Tensor, dist.Work]] = []

    @override
    def launch(self, bucket: Bucket) -> None:
        for group in bucket.groups[:1]:
            copy = bucket.buffer.clone()
            self.fork()
            with torch.cuda.stream(self.comm):
                work = dist.all_reduce(copy, group=group, async_op=True)
            self.held.append((bucket, copy, work))

    @override
    def wait(self) -> None:
        self.copy_back()
        self.join()
        self.held.clear()

    def copy_back(self) -> None:
        """Copy the reduced copies back into the buckets."""
        with torch.cuda.stream(self.comm):
            for bucket, copy, work in self.held:
                work.wait()
                for group in bucket.groups[1:]:
                    dist.all_reduce(copy, group=group)
                bucket.buffer.copy_(copy)
