"""Waits between streams that are missing, or come too late."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import get_gradient_edge
from typing_extensions import override

from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.placements import local_grad
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import AveragedViewBuckets, Bucket
from syncverify.subjects.bugbank.entry import reported


@reported(
    "comm-stream-not-after-producer",
    "hpcaitech/ColossalAI#4404",
    trigger="2 ranks, a side stream",
    violates="reduce_reads_after_accumulation",
    cause="reduced_before_accumulated",
)
class NeverForks(SideStreams):
    """The reduction does not wait for the stream that fills the bucket."""

    @override
    def fork(self) -> None:
        pass


class ReducesLegsOnTwoStreams(SideStreams):
    """Right: the second axis is reduced on a second stream."""

    @override
    def bind(self) -> None:
        self.outer = torch.cuda.Stream()
        self.finished: list[torch.cuda.Event] = []
        super().bind()

    @override
    def launch(self, bucket: Bucket) -> None:
        self.fork()
        for group, stream in zip(bucket.groups, (self.comm, self.outer), strict=False):
            with torch.cuda.stream(stream):
                dist.all_reduce(bucket.buffer, group=group)
            self.outer.wait_stream(self.comm)
        self.finished.append(self.last_leg().record_event())

    def last_leg(self) -> torch.cuda.Stream:
        """Return the stream on which the last reduction runs."""
        return self.outer

    @override
    def join(self) -> None:
        while self.finished:
            self.finished.pop().wait()


@reported(
    "event-after-first-leg",
    "pytorch/pytorch#160481",
    trigger="a mesh of (2, 2), each axis with a stream of its own",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
)
class RecordsFirstLeg(ReducesLegsOnTwoStreams):
    """The event of completion is recorded on the stream of the first of two legs."""

    @override
    def last_leg(self) -> torch.cuda.Stream:
        return self.comm


@reported(
    "final-join-missing",
    "pytorch/pytorch#144535",
    trigger="2 ranks, a side stream",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
)
class NeverJoins(SideStreams):
    """The main stream does not wait for the side stream at the end."""

    @override
    def join(self) -> None:
        pass


class AveragesAside(SideStreams):
    """Right: all of the caller's step runs on a stream that is not the default one."""

    capabilities = replace(AveragedViewBuckets.capabilities, overlaps_backward=True)

    @override
    def bind(self) -> None:
        self.compute = torch.cuda.Stream()
        with self.aside():
            super().bind()

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run a micro-batch on the stream of the step."""
        with self.aside():
            compute_loss().backward()

    @override
    def wait(self) -> None:
        with self.aside():
            super().wait()
            for bucket in self.buckets:
                for group in bucket.groups:
                    bucket.buffer.div_(group.size())

    @override
    def zero_grad(self) -> None:
        with self.aside():
            super().zero_grad()

    @override
    def unbind(self) -> None:
        with self.aside():
            super().unbind()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run something on the stream of the step."""
        caller = torch.cuda.current_stream()
        self.compute.wait_stream(caller)
        with torch.cuda.stream(self.compute):
            yield
        caller.wait_stream(self.compute)


@reported(
    "finalize-on-default-stream",
    "pytorch/pytorch#37790",
    trigger="2 ranks, a step on a stream that is not the default one",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
)
class JoinsDefaultStream(AveragesAside):
    """The default stream waits for the reduction, and the step is on another one."""

    @override
    def join(self) -> None:
        torch.cuda.default_stream().wait_stream(self.comm)


class AccumulatesOnOwnStream(SideStreams):
    """Right: accumulation runs on a stream that `bind()` makes."""

    @override
    def bind(self) -> None:
        super().bind()
        with torch.cuda.stream(torch.cuda.Stream()):
            managed = (p for bucket in self.buckets for p in bucket.parameters)
            self.accumulators = [get_gradient_edge(p).node for p in managed]

    @override
    def unbind(self) -> None:
        super().unbind()
        del self.accumulators


@reported(
    "hook-runs-on-init-stream",
    "NVIDIA/Megatron-LM#3670",
    trigger="2 ranks, gradient accumulators made on another stream",
    violates="reduce_reads_after_accumulation",
    cause="reduced_before_accumulated",
)
class ForksFromDefaultStream(AccumulatesOnOwnStream):
    """The reduction waits for the default stream, and accumulation is on another one."""

    @override
    def fork(self) -> None:
        self.comm.wait_stream(torch.cuda.default_stream())


@reported(
    "stream-context-left-open",
    "pytorch/pytorch#17439",
    trigger="any program",
    violates="stream_context_is_restored",
    cause="stream_changed",
)
class LeavesContextOpen(SideStreams):
    """A stream context outlives the call that enters it, and ends in the next one."""

    @override
    def wait(self) -> None:
        super().wait()
        self.context = torch.cuda.stream(self.comm)
        self.context.__enter__()

    @override
    def zero_grad(self) -> None:
        self.context.__exit__(None, None, None)
        self.join()
        super().zero_grad()


@reported(
    "wait-at-entry-too-late",
    "pytorch/pytorch#181218",
    trigger="2 ranks, a side stream",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
)
class JoinsAtNextEntry(SideStreams):
    """The main stream waits when the next call begins, with work queued in between."""

    @override
    def join(self) -> None:
        pass

    @override
    def zero_grad(self) -> None:
        super().join()
        super().zero_grad()


class PacksOnTwoStreams(MainGrads):
    """Right: gradients are copied into their bucket on two streams, in turns."""

    uses_streams = True

    @override
    def bind(self) -> None:
        super().bind()
        self.comm = torch.cuda.Stream()
        self.packers = [torch.cuda.Stream(), torch.cuda.Stream()]
        self.packer_of = dict(zip(self.moved, cycle(self.packers), strict=False))

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        packer = self.packer_of[parameter]
        packer.wait_stream(torch.cuda.current_stream())
        local_grad(parameter).record_stream(packer)
        with torch.cuda.stream(packer):
            super().on_accumulated(slot, parameter)

    @override
    def wait(self) -> None:
        for packer in self.awaited():
            self.comm.wait_stream(packer)
        with torch.cuda.stream(self.comm):
            super().wait()
        torch.cuda.current_stream().wait_stream(self.comm)

    def awaited(self) -> list[torch.cuda.Stream]:
        """List the streams that fill buckets."""
        return self.packers


@reported(
    "wait-only-last-hook-stream",
    "deepspeedai/DeepSpeed#8061",
    trigger="2 ranks, 2 parameters in one bucket, packed on 2 streams",
    violates="reduce_reads_after_accumulation",
    cause="reduced_before_accumulated",
    # On one rank nothing is reduced, and the optimizer reads next.
    or_cause="read_before_reduced",
)
class WaitsForLastPacker(PacksOnTwoStreams):
    """The reduction waits only for the stream that filled the bucket last."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        super().on_accumulated(slot, parameter)
        self.last = self.packer_of[parameter]

    @override
    def awaited(self) -> list[torch.cuda.Stream]:
        return [self.last]


class MeasuresNorm(SideStreams):
    """Right: a third stream reads reduced gradients before they are cleared."""

    @override
    def bind(self) -> None:
        self.telemetry = torch.cuda.Stream()
        super().bind()

    @override
    def zero_grad(self) -> None:
        self.telemetry.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.telemetry):
            for bucket in self.buckets:
                bucket.buffer.square().sum()
        self.finish_telemetry()
        super().zero_grad()

    def finish_telemetry(self) -> None:
        """Wait until no stream reads gradients."""
        torch.cuda.current_stream().wait_stream(self.telemetry)


@reported(
    "zero-grad-while-in-flight",
    "horovod/horovod#1116",
    trigger="2 ranks, gradients read on a third stream",
    violates="zero_grad_waits_for_reduce",
    cause="zeroed_in_flight",
)
class ZeroesWhatIsRead(MeasuresNorm):
    """Gradients may be cleared while something in flight reads them."""

    @override
    def finish_telemetry(self) -> None:
        pass


class ZeroesAside(SideStreams):
    """Right: buckets are cleared off the critical path."""

    @override
    def zero_grad(self) -> None:
        self.fork()
        with torch.cuda.stream(self.comm):
            super().zero_grad()
        self.finish_zeroing()

    def finish_zeroing(self) -> None:
        """Wait until gradients are cleared."""
        self.join()


@reported(
    "zeroing-not-awaited",
    "deepspeedai/DeepSpeed#856",
    trigger="2 ranks, 2 steps",
    violates="zero_grad_waits_for_reduce",
    cause="used_before_zeroed",
)
class NeverFinishesZeroing(ZeroesAside):
    """The next backward does not wait until gradients are cleared."""

    @override
    def finish_zeroing(self) -> None:
        pass

    @override
    def unbind(self) -> None:
        self.join()
        super().unbind()
