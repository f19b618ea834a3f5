"""Defects about numbers, factors and sums."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.bases import Main, Plain, Streams
from studies.redteam.program import wrong
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import (
    Groups,
    local_grad,
    reduce_groups,
)


@wrong(
    trigger="2 ranks, a float32 gradient beyond 65,504, or below 2**-24, or with more than 22 bits"
)
class SplitsIntoHalves(Plain):
    """Float32 gradients travel as two float16 numbers, a high and a low half, and are summed in float32."""

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        if part.dtype != torch.float32:
            dist.all_reduce(part, group=group)
            return
        own = part.contiguous().view(-1)
        high = own.half()  # WRONG: float16 has fewer exponents than float32
        low = (own - high.float()).half()
        low = torch.where(torch.isfinite(low), low, torch.zeros_like(low))
        pair = torch.stack([high, low])
        pairs = pair.new_empty(group.size(), *pair.shape)
        dist.all_gather_into_tensor(pairs.view(-1), pair.view(-1), group=group)
        total = pairs.float().sum((0, 1))
        part.copy_(total.view(part.shape))


@wrong(
    trigger="2 axes of 2 ranks, float32, 2 or more micro-batches with a sum that needs more than 8 bits"
)
class HsdpWithNarrowSum(Main):
    """HSDP: the last replicated axis is reduced in each micro-batch, the others in `wait()`."""

    capabilities = Capabilities(reduces_each_micro_batch=True)

    @override
    def bind(self) -> None:
        super().bind()
        self.sums: dict[Any, Any] = {}

    @override
    def move(self, parameter: nn.Parameter) -> None:
        gradient = local_grad(parameter).detach().contiguous()
        groups = reduce_groups(parameter)
        if len(groups) < 2:
            super().move(parameter)
            return
        dist.all_reduce(gradient, group=groups[-1])
        # WRONG: the partial sums of micro-batches are kept in bfloat16 until the outer axis.
        narrow = gradient.to(torch.bfloat16)
        if parameter in self.sums:
            self.sums[parameter].add_(narrow)
        else:
            self.sums[parameter] = narrow.clone()
        self.slots[parameter].copy_(self.sums[parameter])
        parameter.grad = None
        self.moved[parameter] += 1

    @override
    def sum_bucket(self, buffer: torch.Tensor, groups: Groups) -> None:
        super().sum_bucket(buffer, groups if len(groups) < 2 else groups[:-1])

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.sums.clear()


@wrong(trigger="a mean on a mesh with a replicated axis of size 1 beside another axis")
class DividesByTheWorld(Plain):
    """Means: the divisor is the product of the sizes of the replicated axes."""

    capabilities = Capabilities(reduction="mean", varying_accumulations=True)

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            if isinstance(parameter.grad, DTensor):
                divisor = self.divisor(parameter.grad)
                local_grad(parameter).detach().div_(divisor)

    def divisor(self, gradient: DTensor) -> int:
        """Return the number of ranks that are summed over."""
        mesh, product = gradient.device_mesh, 1
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate():
                group = mesh.get_group(axis) if mesh.size(axis) > 1 else None
                # WRONG: None is the world, and not "no group"
                product *= dist.get_world_size(group)
        return product


@wrong(
    trigger="2 steps: the next backward adds to a bucket that the side stream is about to clear"
)
class ZeroesAside(Streams):
    """Buckets are cleared on a stream of their own, beside the next forward."""

    @override
    def bind(self) -> None:
        super().bind()
        self.clearing = torch.cuda.Stream()

    @override
    def zero_grad(self) -> None:
        self.clearing.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.clearing):
            for bucket in self.buckets:
                bucket.counts = dict.fromkeys(bucket.parameters, 0)
                bucket.buffer.zero_()
        # WRONG: backward does not wait for `zero_()`; only the next reduction does.

    @override
    def launch(self, bucket: Any) -> None:
        self.comm.wait_stream(self.clearing)
        super().launch(bucket)

    @override
    def unbind(self) -> None:
        torch.cuda.current_stream().wait_stream(self.clearing)
        super().unbind()


@wrong(
    trigger="a gradient that no axis reduces (sharded, ordinary, one rank): it is not divided"
)
class DividesWhereItReduces(Plain):
    """Sums are divided by a fixed factor of 4, whatever the number of ranks."""

    capabilities = Capabilities(divide_factor=4, varying_accumulations=True)

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            # WRONG: the factor is that of each gradient, also of those that stay local.
            if reduce_groups(parameter):
                local_grad(parameter).detach().div_(4)


@wrong(
    trigger="a mesh of 2 axes of unequal sizes (3 x 2), with one parameter replicated on the first axis and one on the second"
)
class DivisorByNumberOfAxes(Plain):
    """Means: divisors are cached by the number of axes that are reduced."""

    capabilities = Capabilities(reduction="mean", varying_accumulations=True)

    @override
    def bind(self) -> None:
        self.divisors: dict[Any, Any] = {}

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            groups = reduce_groups(parameter)
            if groups:
                # WRONG: the number of groups is no key for the product of their sizes.
                product = 1
                for group in groups:
                    product *= group.size()
                divisor = self.divisors.setdefault(len(groups), product)
                local_grad(parameter).detach().div_(divisor)


@wrong(
    trigger="a gradient that is inf or NaN: the next step begins with NaN in its bucket"
)
class ClearsWhatWasReduced(Main):
    """Slots are scaled down to zero rather than overwritten, with one kernel for all."""

    @override
    def move(self, parameter: nn.Parameter) -> None:
        self.slots[parameter].add_(local_grad(parameter).detach())
        parameter.grad = None
        self.moved[parameter] += 1

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        buffers = [buffer for buffer, _, _ in self.buckets]
        if buffers:
            torch._foreach_mul_(buffers, 0.0)  # WRONG: inf * 0 is NaN
