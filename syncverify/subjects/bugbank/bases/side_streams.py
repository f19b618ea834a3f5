"""Buckets are reduced on a side stream, beside the backward that fills other buckets.

Streams come from `torch.cuda`, as they do on GPUs.
"""

from __future__ import annotations

import torch
from typing_extensions import override

from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets


class SideStreams(ViewBuckets):
    """Forks from the caller's stream to reduce, and joins it in the end."""

    overlaps_backward = True

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
