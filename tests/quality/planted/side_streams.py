"""Defects in what waits for what, where reductions have a stream of their own.

Hooks launch reductions on a communication stream, which runs beside the backward. Streams
come from `torch.cuda`, as they do on GPUs. Each defect stands below the twin that it
differs from by a line or two.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import get_gradient_edge

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities


class NeverForks(SideStreams):
    """The reduction does not wait for the stream that fills the bucket.

    Source: hpcaitech/ColossalAI#4404.
    """

    def fork(self) -> None:
        pass


class NeverJoins(SideStreams):
    """Nobody calls what makes the main stream wait at the end.

    Source: pytorch/pytorch#144535.
    """

    def join(self) -> None:
        pass


class JoinsAtNextEntry(NeverJoins):
    """The main stream waits when the next call begins, with work queued in between.

    Source: pytorch/pytorch#181218.
    """

    def zero_grad(self) -> None:
        SideStreams.join(self)
        super().zero_grad()


class LosesHandles(SideStreams):
    """The list of handles to wait for is never filled.

    Source: pytorch/pytorch#122849.
    """

    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        bucket.work = None


class DrainsInOneHook(SideStreams):
    """The bucket that is taken for the last one waits for all in flight, and nobody else.

    Source: ROCm/pytorch#3500.
    """

    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if bucket is self.buckets[0]:
            SideStreams.wait(self)

    def wait(self) -> None:
        self.join()


class LaunchesOnFirstGradient(SideStreams):
    """A bucket is launched after its first gradient, while others are still added.

    Source: facebookresearch/fairscale#780.
    """

    def is_ready(self, bucket: Bucket) -> bool:
        return bucket.counts.total() == 1


class LaunchesInWait(SideStreams):
    """Reductions were to overlap, and are all exposed after backward.

    Source: pytorch/torchtitan#3821.
    """

    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    def wait(self) -> None:
        for bucket in self.buckets:
            self.launch(bucket)
        super().wait()


class LeavesContextOpen(SideStreams):
    """A stream context outlives the call that enters it, and ends in the next one.

    Source: pytorch/pytorch#17439.
    """

    def wait(self) -> None:
        super().wait()
        self.context = torch.cuda.stream(self.comm)
        self.context.__enter__()

    def zero_grad(self) -> None:
        self.context.__exit__(None, None, None)
        self.join()
        super().zero_grad()


class AccumulatesWhereBound(SideStreams):
    """Correct: accumulation runs on the stream on which the subject was bound."""

    def bind(self) -> None:
        super().bind()
        with torch.cuda.stream(torch.cuda.Stream()):
            managed = (p for bucket in self.buckets for p in bucket.parameters)
            self.accumulators = [get_gradient_edge(p).node for p in managed]

    def unbind(self) -> None:
        super().unbind()
        del self.accumulators


class ForksFromDefaultStream(AccumulatesWhereBound):
    """The reduction waits for the default stream, and accumulation is on another one.

    Source: NVIDIA/Megatron-LM#3670.
    """

    def fork(self) -> None:
        self.comm.wait_stream(torch.cuda.default_stream())


class AveragesAside(SideStreams):
    """Correct: all of the caller's step runs on a stream that is not the default one."""

    capabilities = Capabilities(
        outside=ALL_BEYOND,
        reduction="mean",
        varying_accumulations=True,
        overlaps_backward=True,
    )

    def bind(self) -> None:
        self.compute = torch.cuda.Stream()
        with self.aside():
            super().bind()

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        with self.aside():
            compute_loss().backward()

    def wait(self) -> None:
        with self.aside():
            super().wait()
            for bucket in self.buckets:
                for group in bucket.groups:
                    bucket.buffer.div_(group.size())

    def zero_grad(self) -> None:
        with self.aside():
            super().zero_grad()

    def unbind(self) -> None:
        with self.aside():
            super().unbind()

    @contextmanager
    def aside(self) -> Iterator[None]:
        caller = torch.cuda.current_stream()
        self.compute.wait_stream(caller)
        with torch.cuda.stream(self.compute):
            yield
        caller.wait_stream(self.compute)


class JoinsDefaultStream(AveragesAside):
    """The default stream waits for the reduction, and the step is on another one.

    Source: pytorch/pytorch#37790.
    """

    def join(self) -> None:
        torch.cuda.default_stream().wait_stream(self.comm)


class PacksOnTwoStreams(MainGrads):
    """Correct: gradients are copied into their bucket on two streams, in turns."""

    def bind(self) -> None:
        super().bind()
        self.comm = torch.cuda.Stream()
        self.packers = [torch.cuda.Stream(), torch.cuda.Stream()]
        self.packer_of = dict(zip(self.moved, cycle(self.packers), strict=False))

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        packer = self.packer_of[parameter]
        packer.wait_stream(torch.cuda.current_stream())
        local(parameter.grad).record_stream(packer)
        with torch.cuda.stream(packer):
            super().on_accumulated(slot, parameter)

    def wait(self) -> None:
        for packer in self.awaited():
            self.comm.wait_stream(packer)
        with torch.cuda.stream(self.comm):
            super().wait()
        torch.cuda.current_stream().wait_stream(self.comm)

    def awaited(self) -> list[torch.cuda.Stream]:
        return self.packers


class WaitsForLastPacker(PacksOnTwoStreams):
    """The reduction waits only for the stream that filled the bucket last.

    Source: deepspeedai/DeepSpeed#8061.
    """

    def awaited(self) -> list[torch.cuda.Stream]:
        return self.packers[-1:]


class ReducesLegsOnTwoStreams(SideStreams):
    """Correct: the second axis is reduced on a stream of its own."""

    def bind(self) -> None:
        self.outer = torch.cuda.Stream()
        self.finished: list[torch.cuda.Event] = []
        super().bind()

    def launch(self, bucket: Bucket) -> None:
        self.fork()
        for group, stream in zip(bucket.groups, (self.comm, self.outer), strict=False):
            with torch.cuda.stream(stream):
                dist.all_reduce(bucket.buffer, group=group)
            self.outer.wait_stream(self.comm)
        self.finished.append(self.last_leg().record_event())

    def last_leg(self) -> torch.cuda.Stream:
        return self.outer

    def join(self) -> None:
        while self.finished:
            self.finished.pop().wait()


class RecordsFirstLeg(ReducesLegsOnTwoStreams):
    """The event of completion is recorded on the stream of the first of two legs.

    Source: pytorch/pytorch#160481.
    """

    def last_leg(self) -> torch.cuda.Stream:
        return self.comm


class MeasuresNorm(SideStreams):
    """Correct: what was reduced is looked at on a third stream before it is cleared."""

    def bind(self) -> None:
        self.telemetry = torch.cuda.Stream()
        super().bind()

    def wait(self) -> None:
        super().wait()
        self.telemetry.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.telemetry):
            for bucket in self.buckets:
                bucket.buffer.square().sum()

    def zero_grad(self) -> None:
        self.finish_telemetry()
        super().zero_grad()

    def finish_telemetry(self) -> None:
        torch.cuda.current_stream().wait_stream(self.telemetry)


class ZeroesWhatIsRead(MeasuresNorm):
    """Gradients may be cleared while something in flight reads them.

    Source: horovod/horovod#1116.
    """

    def finish_telemetry(self) -> None:
        pass


class ZeroesAside(SideStreams):
    """Correct: buckets are cleared off the critical path."""

    def zero_grad(self) -> None:
        self.fork()
        with torch.cuda.stream(self.comm):
            super().zero_grad()
        self.finish_zeroing()

    def finish_zeroing(self) -> None:
        self.join()


class NeverFinishesZeroing(ZeroesAside):
    """The next backward does not wait until gradients are cleared.

    Source: deepspeedai/DeepSpeed#856.
    """

    def finish_zeroing(self) -> None:
        pass


class AgreesOnOverflow(SideStreams):
    """Correct: asks all ranks whether a gradient is infinite, and keeps the answer."""

    def bind(self) -> None:
        super().bind()
        self.found, self.everywhere = torch.zeros(1), torch.zeros(1)

    def wait(self) -> None:
        super().wait()
        work = dist.all_reduce(self.found, dist.ReduceOp.MAX, async_op=True)
        self.keep_answer(work)

    def keep_answer(self, work: dist.Work) -> None:
        work.wait()
        self.everywhere.copy_(self.found)


class KeepsAnswerTooEarly(AgreesOnOverflow):
    """The answer is copied before the reduction that gives it is waited for.

    Source: pytorch/pytorch#115710.
    """

    def keep_answer(self, work: dist.Work) -> None:
        self.everywhere.copy_(self.found)
        work.wait()
