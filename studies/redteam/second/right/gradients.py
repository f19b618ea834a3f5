"""Right programs that keep or treat gradients in an unusual way."""

import zlib
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from studies.redteam.bases import Main, Plain
from studies.redteam.program import right
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import (
    Groups,
    local,
    local_grad,
    reduce_groups,
)


@right(since="the order of reductions is that of the list, whatever came first")
class LazySlots(Plain):
    """`bind()` allocates nothing: a parameter gets its accumulator when its first gradient comes."""

    @override
    def bind(self) -> None:
        self.sums: dict[Any, Any] = {}
        self.handles = [
            p.register_post_accumulate_grad_hook(self.take) for p in self.parameters
        ]

    def take(self, parameter: nn.Parameter) -> None:
        """Keep the gradient of autograd, and add later ones to it."""
        if parameter in self.sums:
            part = local_grad(parameter).detach()
            local(self.sums[parameter]).detach().add_(part)
        else:
            self.sums[parameter] = parameter.grad
        parameter.grad = None

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter in self.sums:
                parameter.grad = self.sums.pop(parameter)
                part = local_grad(parameter).detach()
                for group in reduce_groups(parameter):
                    self.sum_over(part, group)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.sums.clear()

    @override
    def unbind(self) -> None:
        super().unbind()
        self.sums.clear()


@right(since="CRC32 of a text is the same on all ranks, and the index breaks ties")
class SortedByChecksum(Plain):
    """Gradients are reduced in the order of a checksum of index, global shape and dtype."""

    @override
    def wait(self) -> None:
        def key(item: tuple[int, nn.Parameter]) -> Any:
            index, parameter = item
            text = f"{index}:{tuple(parameter.shape)}:{parameter.dtype}"
            return zlib.crc32(text.encode()), index

        for _, parameter in sorted(enumerate(self.parameters), key=key):
            part = local_grad(parameter).detach()
            for group in reversed(reduce_groups(parameter)):  # the last axis first
                self.sum_over(part, group)


@right(since="each rank reduces each parameter, with zeros where there is no gradient")
class ZerosForUnused(Main):
    """A parameter without a gradient contributes zeros, so that ranks always agree."""

    capabilities = Capabilities(
        varying_accumulations=True,
        right=frozenset(
            {
                "used=never",
                "used=not_on_odd_ranks",
                "event=empty_step",
                "event=tail",
                "event=missing_backward",
            }
        ),
    )

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            if not self.moved[parameter]:
                self.slots[parameter].zero_()
        super().wait()


@right(since="`mark_ready()` does what the hook does")
class MovesByHand(Main):
    """Main gradients, which also move when the caller says that it added a gradient by hand."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"backward=split_by_hand"})
    )

    @override
    def move(self, parameter: nn.Parameter) -> None:
        if parameter.grad is not None:
            super().move(parameter)

    def mark_ready(self, parameter: nn.Parameter) -> None:
        """Take note of a gradient that the caller has added itself."""
        self.move(parameter)


@right(since="the attribute goes in `unbind()`, and slots are zeroed before each step")
class MainGradAttribute(Main):
    """Each parameter carries its part of the buffer as `main_grad` until `unbind()`."""

    @override
    def bind(self) -> None:
        super().bind()
        for parameter in self.parameters:
            setattr(parameter, "main_grad", self.slots[parameter])  # noqa: B010

    @override
    def move(self, parameter: nn.Parameter) -> None:
        gradient, parameter.grad = local_grad(parameter).detach(), None
        getattr(parameter, "main_grad").add_(gradient)  # noqa: B009

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for buffer, _, _ in self.buckets:
            buffer.zero_()

    @override
    def unbind(self) -> None:
        for parameter in self.parameters:
            delattr(parameter, "main_grad")
        super().unbind()


@right(
    since="each gradient with a replicated axis is divided, and a power of two is exact"
)
class DividesEachByEight(Plain):
    """Local gradients are multiplied by 1/8 before they are summed."""

    capabilities = Capabilities(divide_factor=8, varying_accumulations=True)

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            placements = getattr(parameter, "placements", ())
            # Also where the axis has one rank; a gradient without such an axis is not divided.
            if any(each.is_replicate() for each in placements):
                local_grad(parameter).detach().mul_(0.125)
        super().wait()


@right(
    since="the contract names the dtype of the wire; local gradients are not rounded"
)
class NarrowOnTheWire(Main):
    """Buckets of float32 are reduced as bfloat16, which the contract says."""

    capabilities = Capabilities(wire_dtype="bfloat16")

    @override
    def sum_bucket(self, buffer: torch.Tensor, groups: Groups) -> None:
        if groups and buffer.dtype == torch.float32:
            wire = buffer.to(torch.bfloat16)
            super().sum_bucket(wire, groups)
            buffer.copy_(wire)
        else:
            super().sum_bucket(buffer, groups)


@right(since="each number of dims that occurs has its turn, in sorted order")
class ByNumberOfDims(Plain):
    """Gradients are reduced by number of dims, the largest number first."""

    capabilities = Capabilities(
        varying_accumulations=True,
        right=frozenset({"shape=4 dims"}),
        layers=("studies.redteam.bases:Cube",),
    )

    @override
    def wait(self) -> None:
        by_dims: dict[Any, Any] = {}
        for parameter in self.parameters:
            by_dims.setdefault(parameter.dim(), []).append(parameter)
        for num_dims in sorted(by_dims, reverse=True):
            for parameter in by_dims[num_dims]:
                self.sum_up(parameter)
