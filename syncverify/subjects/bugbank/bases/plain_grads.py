"""`.grad` is left to autograd, and reduced where it lies, in `wait()`."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.managed import Managed
from syncverify.subjects.bugbank.bases.placements import like, local_grad


class PlainGrads(Managed):
    """Sums gradient after gradient, once all of them came."""

    capabilities = Capabilities(
        varying_accumulations=True, features=frozenset({"use", "backward"})
    )

    def bind(self) -> None:
        """Need nothing yet."""

    def reduce(self, gradient: torch.Tensor) -> None:
        """Sum one gradient over the ranks that replicate it."""
        if isinstance(gradient, DTensor):
            for axis, placement in enumerate(gradient.placements):
                if placement.is_replicate():
                    group = gradient.device_mesh.get_group(axis)
                    dist.all_reduce(gradient.to_local().detach(), group=group)

    def wait(self) -> None:
        """Reduce the gradients that exist."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                self.reduce(parameter.grad)

    def zero_grad(self) -> None:
        """Drop gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @override
    def unbind(self) -> None:
        super().unbind()
        self.zero_grad()


class CountsHookCalls(PlainGrads):
    """Reduces at the n-th call of a hook; a plain micro-batch brings one call."""

    capabilities = Capabilities(varying_accumulations=True)

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            self.register(parameter, self.note)

    def note(self, parameter: nn.Parameter) -> None:
        """Count a call."""
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required and parameter.grad is not None:
            self.reduce(parameter.grad)

    @override
    def wait(self) -> None:
        pass

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.counts = dict.fromkeys(self.parameters, 0)


class ReducesEachMicroBatch(PlainGrads):
    """Takes each gradient out of `.grad`, reduces it and adds it to a sum."""

    capabilities = Capabilities(
        varying_accumulations=True, reduces_each_micro_batch=True
    )

    @override
    def bind(self) -> None:
        self.sums: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            self.register(parameter, self.on_gradient)

    def on_gradient(self, parameter: nn.Parameter) -> None:
        """Reduce a gradient, and add it up."""
        assert parameter.grad is not None, "a hook was called, so there is a gradient"
        self.reduce(parameter.grad)
        self.add(parameter, local_grad(parameter).detach())
        parameter.grad = None

    def add(self, parameter: nn.Parameter, reduced: torch.Tensor) -> None:
        """Add to the sum of a step."""
        if parameter in self.sums:
            self.sums[parameter].add_(reduced)
        else:
            self.sums[parameter] = reduced.clone()

    @override
    def wait(self) -> None:
        for parameter, summed in self.sums.items():
            parameter.grad = like(parameter, summed)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.sums.clear()
