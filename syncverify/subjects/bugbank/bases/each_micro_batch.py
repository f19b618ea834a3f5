"""Every micro-batch is reduced, and the reduced gradients are summed up."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import like, local_grad
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads


class ReducesEachMicroBatch(PlainGrads):
    """Takes each gradient out of `.grad`, reduces it and adds it to a sum."""

    capabilities = Capabilities(
        varying_accumulations=True, reduces_each_micro_batch=True
    )

    @override
    def bind(self) -> None:
        self.sums: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.on_gradient)
            self.handles.append(hook)

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
