"""Subjects whose waits are known, needed or not; some subjects fail apart from their waits."""

import os
import signal
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import Bucket


class TwoStreams(SideStreams):
    """Reduces on a side stream, with the two waits that this takes."""

    capabilities = Capabilities(
        takes_cuda_streams=True,
        needs_nccl=True,
        outside=frozenset({"parameters=sharded", "parameters=ordinary"}),
    )

    def launch(self, bucket: Bucket) -> None:
        self.fork()
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(bucket.buffer, group=group)

    def fork(self) -> None:
        self.comm.wait_stream(torch.cuda.current_stream())

    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.comm)


class WaitsForLastBucket(TwoStreams):
    """The stream of backward waits for the bucket before, whose memory it leaves alone.

    As DeepSpeed's `average_tensor` does (DeepSpeed#7804, #8364), here with a buffer for each
    bucket.
    """

    def fork(self) -> None:
        super().fork()
        torch.cuda.current_stream().wait_stream(self.comm)


class WaitsForReusedBuffer(TwoStreams):
    """One buffer for all buckets, which the stream of backward fills: it needs the same wait."""

    def bind(self) -> None:
        super().bind()
        most = max((bucket.buffer.numel() for bucket in self.buckets), default=0)
        self.shared = torch.zeros(most)

    def launch(self, bucket: Bucket) -> None:
        torch.cuda.current_stream().wait_stream(self.comm)
        sent = self.shared[: bucket.buffer.numel()]
        sent.copy_(bucket.buffer)
        self.fork()
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(sent, group=group)
            bucket.buffer.copy_(sent)


class Synchronizes(TwoStreams):
    """Waits once more for all that the joined streams have done, by each other kind of call."""

    def wait(self) -> None:
        super().wait()
        torch.cuda.synchronize()
        for bucket in self.buckets:
            bucket.buffer.record_stream(self.comm)
            for group in bucket.groups:
                dist.barrier(group)

    def never_called(self, event: torch.cuda.Event) -> None:
        self.comm.wait_event(event)


class EndsItsProcess(TwoStreams):
    """Ends the process that it runs in, where the host goes on without its wait."""

    def wait(self) -> None:
        super().wait()
        done = torch.cuda.Event()
        done.record()
        done.synchronize()
        if not done.query():
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)  # until the signal comes


class FailsInSecondStep(TwoStreams):
    """Raises in the second step, with all of its waits."""

    num_steps = 0

    def wait(self) -> None:
        super().wait()
        self.num_steps += 1
        if self.num_steps > 1:
            self.fail()

    def fail(self) -> None:
        raise ValueError("one step alone")


class RefusedInSecondStep(FailsInSecondStep):
    """Asks for a feature that is not simulated, in the second step."""

    def fail(self) -> None:
        torch.cuda.Event().ipc_handle()


class RunsMicroBatches(TwoStreams):
    """Runs forward and backward of the training program itself."""

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        compute_loss().backward()


class EndsAtQuery(TwoStreams):
    """Raises where the device is late, with all of its waits."""

    def wait(self) -> None:
        super().wait()
        self.buckets[0].buffer.record_stream(self.comm)
        if not self.comm.query():
            raise ValueError("late")


class KeepsCopies(TwoStreams):
    """Reduces a copy of each bucket on the side stream, and keeps it until the streams join."""

    is_recorded = False

    def bind(self) -> None:
        super().bind()
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def launch(self, bucket: Bucket) -> None:
        sent = bucket.buffer.clone()
        self.fork()
        with torch.cuda.stream(self.comm):
            for group in bucket.groups:
                dist.all_reduce(sent, group=group)
            bucket.buffer.copy_(sent)
        if self.is_recorded:
            sent.record_stream(self.comm)
        self.kept.append((bucket.buffer, sent))

    def wait(self) -> None:
        super().wait()
        self.kept.clear()


class KeepsRecordedCopies(KeepsCopies):
    """Keeps copies that `record_stream` keeps as well."""

    is_recorded = True
