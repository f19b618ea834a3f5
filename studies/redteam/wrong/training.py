"""Defects that need an optimizer, or other values on each rank."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.placements import local, local_grad
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets


@wrong(trigger="an optimizer writes parameters between steps")
class RestoresParameters(PlainGrads):
    """`unbind()` writes the values back that parameters had at `bind()`."""

    @override
    def bind(self) -> None:
        self.values = {p: local(p).detach().clone() for p in self.parameters}

    @override
    def unbind(self) -> None:
        for parameter, value in self.values.items():
            local(parameter).detach().copy_(value)
        super().unbind()


@wrong(trigger="gradients are scaled in place after `wait()`; 2 steps")
class SubtractsWhatItHandedOut(ViewBuckets):
    """Buckets are cleared by subtracting a copy of the reduced gradients."""

    @override
    def wait(self) -> None:
        super().wait()
        self.copies = [bucket.buffer.clone() for bucket in self.buckets]

    @override
    def zero_grad(self) -> None:
        for bucket, copy in zip(self.buckets, self.copies, strict=True):
            bucket.counts.clear()
            bucket.buffer.sub_(copy)


@wrong(trigger="gradients are clipped in place after `wait()`")
class LogsOnASideStream(SideStreams):
    """A side stream copies reduced gradients for a log, and nobody waits for the copy."""

    @override
    def join(self) -> None:
        super().join()
        with torch.cuda.stream(self.comm):
            self.log = [bucket.buffer.clone() for bucket in self.buckets]

    @override
    def zero_grad(self) -> None:
        super().join()
        super().zero_grad()

    @override
    def unbind(self) -> None:
        super().join()
        self.log = []
        super().unbind()


@wrong(trigger="gradients are scaled in place after `wait()`; 2 steps")
class SkipsZeroingOfTouched(PlainGrads):
    """A gradient that somebody wrote since `wait()` counts as a new one, and is kept."""

    @override
    def wait(self) -> None:
        super().wait()
        self.versions = {
            p: local_grad(p)._version  # noqa: SLF001  # the defect
            for p in self.parameters
            if p.grad is not None
        }

    @override
    def zero_grad(self) -> None:
        for parameter, version in getattr(self, "versions", {}).items():
            if self.is_untouched(parameter, version):
                parameter.grad = None

    def is_untouched(self, parameter: nn.Parameter, version: int) -> bool:
        """Tell whether a gradient has the version that it had at `wait()`."""
        now = parameter.grad
        return now is None or local_grad(parameter)._version == version  # noqa: SLF001


@wrong(trigger="an optimizer writes parameters; 2 steps")
class SplitsByValue(PlainGrads):
    """Parameters with a zero sum are left out, as if they were padding."""

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            if (
                parameter.grad is not None
                and float(local(parameter).detach().sum()) >= 0
            ):
                self.reduce(parameter.grad)


@wrong(trigger="2 ranks, an ordinary parameter with a value of its own")
class AveragesAtBind(PlainGrads):
    """`bind()` averages every plain parameter over the world."""

    @override
    def bind(self) -> None:
        for parameter in self.parameters:
            if not isinstance(parameter, DTensor):
                value = parameter.detach()
                dist.all_reduce(value)
                value.div_(dist.get_world_size())


@wrong(trigger="2 ranks, a sharded parameter")
class BroadcastsShards(ViewBuckets):
    """`bind()` sends rank 0's parts of even shards to all, as if they were replicas."""

    @override
    def bind(self) -> None:
        for group in self.param_groups:
            for parameter in group:
                if isinstance(parameter, DTensor) and not self.is_uneven(parameter):
                    dist.broadcast(local(parameter).detach(), src=0)
        super().bind()

    def is_uneven(self, parameter: DTensor) -> bool:
        """Tell whether ranks may have parts of several sizes."""
        ranks = parameter.device_mesh.size()
        return bool(any(size % ranks for size in parameter.shape))


@wrong(trigger="2 ranks, a frozen ordinary parameter with local values")
class BroadcastsFrozen(PlainGrads):
    """`bind()` sends frozen plain values from rank 0, as DDP does with buffers."""

    @override
    def bind(self) -> None:
        for parameter in itertools.chain(*self.param_groups):
            if not (parameter.requires_grad or isinstance(parameter, DTensor)):
                dist.broadcast(parameter.detach(), src=0)
