"""`.grad` is left to autograd, and reduced where it lies, in `wait()`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.scenario.contract import Capabilities


class PlainGrads:
    """Sums gradient after gradient, once all of them came."""

    capabilities = Capabilities(
        varying_accumulations=True, features=frozenset({"use", "backward"})
    )

    def __init__(
        self, groups: list[list[nn.Parameter]], size_mb: float, count: int
    ) -> None:
        listed = [p for group in groups for p in group if p.requires_grad]
        self.param_groups = groups
        self.parameters = [*dict.fromkeys(listed)]
        self.required = count
        self.handles: list[Any] = []

    def set_required_accumulations(self, count: int) -> None:
        """Change the number of micro-batches of a step."""
        self.required = count

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

    def unbind(self) -> None:
        """Leave nothing behind."""
        for handle in self.handles:
            handle.remove()
        self.zero_grad()


class CountsHookCalls(PlainGrads):
    """Reduces at the n-th call of a hook; a plain micro-batch brings one call."""

    capabilities = Capabilities(varying_accumulations=True)

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

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
