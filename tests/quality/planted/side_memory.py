"""Buffers that a second stream uses: staged, copied, replaced, freed.

Each defect stands below the twin that it differs from by a line or two.
"""

import torch
import torch.distributed as dist

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket


class TwoStagingBuffers(SideStreams):
    """Correct: buckets are reduced in two buffers, in turns."""

    def bind(self) -> None:
        super().bind()
        size = max((bucket.buffer.nbytes for bucket in self.buckets), default=0)
        self.staging = [torch.zeros(size, dtype=torch.uint8) for _ in range(2)]
        self.finished = [torch.cuda.Event() for _ in range(2)]
        self.num_staged = 0

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
        self.finished[turn].wait()


class RefillsStagingEarly(TwoStagingBuffers):
    """A buffer is filled again while the reduction of what it held still runs.

    Source: deepspeedai/DeepSpeed#3727.
    """

    def await_staging(self, turn: int) -> None:
        pass


class ReducesCopy(SideStreams):
    """Correct: what is reduced is a copy, which lives until it is copied back."""

    def launch(self, bucket: Bucket) -> None:
        copy = bucket.buffer.clone()
        self.fork()
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(copy, group=group)
            bucket.buffer.copy_(copy)
        self.keep(copy)

    def keep(self, copy: torch.Tensor) -> None:
        copy.record_stream(self.comm)


class DropsCopy(ReducesCopy):
    """A temporary goes back to its pool while the other stream still uses it.

    Source: deepspeedai/DeepSpeed#7965.
    """

    def keep(self, copy: torch.Tensor) -> None:
        pass


class HoldsUntilJoined(ReducesCopy):
    """Correct: copies live until the stream that they came from has waited."""

    def bind(self) -> None:
        super().bind()
        self.held: list[torch.Tensor] = []

    def keep(self, copy: torch.Tensor) -> None:
        self.held.append(copy)

    def wait(self) -> None:
        super().wait()
        self.held.clear()


class RecordsEachCopy(HoldsUntilJoined):
    """Right, but copies pile up: none is used again before the host waits.

    Source: pytorch/pytorch#147168.
    """

    def keep(self, copy: torch.Tensor) -> None:
        copy.record_stream(self.comm)


class HoldsCopies(SideStreams):
    """Correct: copies are held until the stream that allocated them has waited."""

    def bind(self) -> None:
        super().bind()
        self.held: list[tuple[Bucket, torch.Tensor, dist.Work]] = []

    def launch(self, bucket: Bucket) -> None:
        for group in bucket.groups[:1]:
            copy = bucket.buffer.clone()
            self.fork()
            with torch.cuda.stream(self.comm):
                work = dist.all_reduce(copy, group=group, async_op=True)
            self.held.append((bucket, copy, work))

    def wait(self) -> None:
        self.copy_back()
        self.join()
        self.held.clear()

    def copy_back(self) -> None:
        with torch.cuda.stream(self.comm):
            for bucket, copy, work in self.held:
                work.wait()
                for group in bucket.groups[1:]:
                    dist.all_reduce(copy, group=group)
                bucket.buffer.copy_(copy)


class ReleasesBeforeJoin(HoldsCopies):
    """A handle protects its tensor until a third stream waited, not the allocating one.

    Source: pytorch/pytorch#188655.
    """

    def wait(self) -> None:
        self.copy_back()
        self.held.clear()
        self.join()


class CopiesBackOnEnqueue(HoldsCopies):
    """The copy back follows a future that is done when the reduction is only queued.

    Source: NERSC/sc24-dl-tutorial#1.
    """

    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if self.held:
            with torch.cuda.stream(self.comm):
                bucket.buffer.copy_(self.held[-1][1])

    def copy_back(self) -> None:
        with torch.cuda.stream(self.comm):
            for _, _, work in self.held:
                work.wait()


class ReplacesBuffers(SideStreams):
    """Correct: each reduction leaves a new buffer, allocated where the old one was."""

    def bind(self) -> None:
        super().bind()
        with torch.cuda.stream(self.allocator()):
            for bucket in self.buckets:
                self.replace(bucket, torch.zeros_like(bucket.buffer))
        self.join()

    def allocator(self) -> torch.cuda.Stream:
        self.fork()
        return self.comm

    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        if bucket.groups:
            self.replace(bucket, bucket.buffer.clone())

    def unbind(self) -> None:
        self.fork()  # the pool of buffers is that of the communication stream
        super().unbind()

    def replace(self, bucket: Bucket, buffer: torch.Tensor) -> None:
        bucket.buffer = buffer
        bucket.attach(buffer)


class AllocatesOnCallersStream(ReplacesBuffers):
    """The first buffer is of the caller's pool, and freed beside the caller's stream.

    Source: NVIDIA/Megatron-LM#6187.
    """

    def allocator(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream()


class CopiesResultAside(SideStreams):
    """Correct: a third stream copies the result, which its allocator knows."""

    def bind(self) -> None:
        self.copier = torch.cuda.Stream()
        super().bind()

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
        reduced.record_stream(self.copier)

    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.copier)


class FreesResultEarly(CopiesResultAside):
    """The result is freed when the function returns, and its copy is still to come.

    Source: pytorch/pytorch#180665.
    """

    def keep(self, reduced: torch.Tensor) -> None:
        pass


class LeavesBuffersBehind(SideStreams):
    """Gradients still lie in the old buffers when these are given up.

    Source: pytorch/pytorch#41954.
    """

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.buckets, self.hooks = [], []
