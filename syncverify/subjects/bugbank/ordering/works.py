"""Works that nothing waits for, or memory that is used while they run."""

import torch
import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.side_streams import HoldsCopies, SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.subjects.bugbank.entry import reported


class AgreesOnOverflow(SideStreams):
    """Right: asks all ranks whether a gradient is infinite, and keeps the answer."""

    @override
    def bind(self) -> None:
        super().bind()
        self.found, self.everywhere = torch.zeros(1), torch.zeros(1)

    @override
    def wait(self) -> None:
        super().wait()
        work = dist.all_reduce(self.found, dist.ReduceOp.MAX, async_op=True)
        self.keep_answer(work)

    def keep_answer(self, work: dist.Work) -> None:
        """Keep the flags of all ranks together."""
        work.wait()
        self.everywhere.copy_(self.found)


@reported(
    "async-result-read-before-wait",
    "pytorch/pytorch#115710",
    trigger="2 ranks, a reduced flag",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
)
class KeepsAnswerTooEarly(AgreesOnOverflow):
    """The answer is copied before the reduction that gives it is waited for."""

    @override
    def keep_answer(self, work: dist.Work) -> None:
        self.everywhere.copy_(self.found)
        work.wait()


@reported(
    "drain-by-assumed-last-hook",
    "ROCm/pytorch#3500",
    trigger="2 ranks, 2 buckets",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
)
class DrainsInOneHook(SideStreams):
    """Only the bucket that is taken for the last one waits for all in flight."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if bucket is self.buckets[0]:
            SideStreams.wait(self)

    @override
    def wait(self) -> None:
        self.join()


@reported(
    "future-done-at-enqueue",
    "NERSC/sc24-dl-tutorial#1",
    trigger="2 ranks",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
)
class CopiesBackOnEnqueue(HoldsCopies):
    """The copy back follows a future that is done when the reduction is only queued."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if self.held:
            with torch.cuda.stream(self.comm):
                bucket.buffer.copy_(self.held[-1][1])

    @override
    def copy_back(self) -> None:
        with torch.cuda.stream(self.comm):
            for _, _, work in self.held:
                work.wait()


@reported(
    "handles-never-kept",
    "pytorch/pytorch#122849",
    trigger="2 ranks, a side stream",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
)
class LosesHandles(SideStreams):
    """The list of handles to wait for is never filled."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        bucket.work = None


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
    "pingpong-buffer-reused-early",
    "deepspeedai/DeepSpeed#3727",
    trigger="2 ranks, 3 buckets through 2 buffers",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
    or_cause="accumulated_unordered",  # on one rank: a copy reads the buffer, no collective
)
class RefillsStagingEarly(TwoStagingBuffers):
    """A buffer is filled again while the reduction of its earlier content still runs."""

    @override
    def await_staging(self, turn: int) -> None:
        pass


@reported(
    "reduction-never-overlaps",
    "pytorch/torchtitan#3821",
    trigger="2 ranks, 2 buckets",
    violates="overlap_is_possible",
    cause="never_overlapped",
)
class LaunchesInWait(SideStreams):
    """Reductions were to overlap, and are all exposed after backward."""

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            self.launch(bucket)
        super().wait()


@reported(
    "reentrant-overwrites-in-flight",
    "facebookresearch/fairscale#780",
    trigger="2 ranks, 2 gradients that come to one bucket",
    violates="gradient_equals_reference",
    cause="reduced_early",
    # With a second reduction in `wait()`, that one may read before autograd adds.
    or_cause="reduced_before_accumulated",
)
class LaunchesOnFirstGradient(SideStreams):
    """A bucket is launched when its first gradient is complete, while others are added."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        complete = [bucket.counts[p] == self.required for p in bucket.parameters]
        return complete.count(True) == 1


@reported(
    "work-handle-empty",
    "pytorch/pytorch#122807",
    trigger="2 ranks",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
)
class NeverWaits(ViewBuckets):
    """Work handles are not kept, so that wait() has nothing to wait for."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        bucket.work = None
