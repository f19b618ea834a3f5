"""A buffer is filled again while the reduction of its earlier content still runs.

Reported in deepspeedai/DeepSpeed#3727.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class TwoStagingBuffers(SideStreams):
    """Right: buckets are reduced in two buffers, in turns."""

    @override
    def bind(self) -> None:
        super().bind()
        size = max((bucket.buffer.nbytes for bucket in self.buckets), default=0)
        self.staging = [torch.zeros(size, dtype=torch.uint8) for _ in range(2)]
        self.finished = [torch.cuda.Event() for _ in range(2)]
        self.num_staged = 0

    @override
    def launch(self, bucket: Bucket) -> None:
        turn = self.num_staged % 2
        self.num_staged += 1
        self.await_staging(turn)
        taken = self.staging[turn][: bucket.buffer.nbytes]
        staged = taken.view(bucket.buffer.dtype)
        staged.copy_(bucket.buffer)
        self.fork()
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(staged, group=group)
            bucket.buffer.copy_(staged)
            self.finished[turn].record()

    def await_staging(self, turn: int) -> None:
        """Wait until a buffer is free."""
        self.finished[turn].wait()


@reported(
    "deepspeedai/DeepSpeed#3727",
    trigger="2 ranks, 3 buckets through 2 buffers",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
    or_cause="accumulated_unordered",  # on one rank: a copy reads the buffer, no collective
    uses_streams=True,
)
class RefillsStagingEarly(TwoStagingBuffers):
    """A buffer is filled again while the reduction of its earlier content still runs."""

    @override
    def await_staging(self, turn: int) -> None:
        pass
