"""Buckets are reduced on a side stream, beside the backward that fills other buckets.

Streams come from `torch.cuda`, as they do on GPUs.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets


class SideStreams(ViewBuckets):
    """Forks from the caller's stream to reduce, and joins it in the end."""

    overlaps_backward = True
    uses_streams = True

    @override
    def bind(self) -> None:
        self.comm = torch.cuda.Stream()
        super().bind()

    @override
    def launch(self, bucket: Bucket) -> None:
        self.fork()
        with torch.cuda.stream(self.comm):
            super().launch(bucket)

    @override
    def wait(self) -> None:
        with torch.cuda.stream(self.comm):
            super().wait()
        self.join()

    def fork(self) -> None:
        """Let the communication stream wait for the stream that fills buckets."""
        self.comm.wait_stream(torch.cuda.current_stream())

    def join(self) -> None:
        """Let the caller's stream wait for the reductions."""
        torch.cuda.current_stream().wait_stream(self.comm)


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
