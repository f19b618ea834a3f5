"""The first buffer is of the caller's pool, and freed beside the caller's stream.

Reported in NVIDIA/Megatron-LM#6187.
"""

import torch
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class ReplacesBuffers(SideStreams):
    """Right: each reduction leaves a new buffer, allocated where the old one was."""

    @override
    def bind(self) -> None:
        super().bind()
        with torch.cuda.stream(self.allocator()):
            for bucket in self.buckets:
                self.replace(bucket, torch.zeros_like(bucket.buffer))
        self.join()

    def allocator(self) -> torch.cuda.Stream:
        """Return the stream that allocates buffers."""
        self.fork()
        return self.comm

    @override
    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        if bucket.groups:
            self.replace(bucket, bucket.buffer.clone())

    @override
    def unbind(self) -> None:
        self.fork()  # the pool of buffers is that of the communication stream
        super().unbind()

    def replace(self, bucket: Bucket, buffer: torch.Tensor) -> None:
        """Exchange the memory of a bucket."""
        bucket.buffer = buffer
        bucket.attach(buffer)


@reported(
    "NVIDIA/Megatron-LM#6187",
    trigger="2 ranks, a buffer that is replaced by its reduced copy",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
    uses_streams=True,
)
class AllocatesOnCallersStream(ReplacesBuffers):
    """The first buffer is of the caller's pool, and freed beside the caller's stream."""

    @override
    def allocator(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream()
