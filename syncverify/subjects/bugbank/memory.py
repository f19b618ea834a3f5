"""Memory that is freed too early, or never."""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.subjects.bugbank.bases.managed import Managed
from syncverify.subjects.bugbank.bases.side_streams import HoldsCopies, SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.subjects.bugbank.entry import reported


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
    "allocated-on-wrong-stream",
    "NVIDIA/Megatron-LM#6187",
    trigger="2 ranks, a buffer that is replaced by its reduced copy",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
)
class AllocatesOnCallersStream(ReplacesBuffers):
    """The first buffer is of the caller's pool, and freed beside the caller's stream."""

    @override
    def allocator(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream()


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
    "freed-before-post-reduce-copy",
    "pytorch/pytorch#180665",
    trigger="2 ranks, 2 buckets, results copied on a third stream",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
)
class FreesResultEarly(CopiesResultAside):
    """The result is freed when the function returns, and its copy is still to come."""

    @override
    def keep(self, reduced: torch.Tensor) -> None:
        pass


@reported(
    "hooks-kept-after-unbind",
    "pytorch/pytorch#63211",
    trigger="any program",
    violates="unbind_restores_parameters",
    cause="hook_left",
)
class KeepsHooks(ViewBuckets):
    """unbind() forgets its hooks without removing them."""

    @override
    def unbind(self) -> None:
        self.handles.clear()
        super().unbind()


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
    "missing-record-stream",
    "deepspeedai/DeepSpeed#7965",
    trigger="2 ranks, a temporary that a side stream reduces",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
)
class DropsCopy(ReducesCopy):
    """A temporary goes back to its pool while the other stream still uses it."""

    @override
    def keep(self, copy: torch.Tensor) -> None:
        pass


@reported(
    "old-buckets-kept-by-grads",
    "pytorch/pytorch#41954",
    trigger="2 parameters in one bucket",
    violates="unbind_restores_parameters",
    cause="buffer_left",
)
class LeavesBuffersBehind(SideStreams):
    """Gradients still lie in the old buffers when these are given up."""

    @override
    def unbind(self) -> None:
        Managed.unbind(self)
        self.buckets = []


@reported(
    "third-stream-stash",
    "pytorch/pytorch#188655",
    trigger="2 ranks, a copy that is dropped before the join",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
)
class ReleasesBeforeJoin(HoldsCopies):
    """A handle protects its tensor until a third stream waited, not the allocating one."""

    @override
    def wait(self) -> None:
        self.copy_back()
        self.held.clear()
        self.join()
