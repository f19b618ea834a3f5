"""Remembers the gradient tensor, which `create_graph=True` replaces.

Reported in pytorch/pytorch#63812.
"""

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#63812",
    trigger="2 micro-batches with create_graph=True",
    violates="gradient_equals_reference",
    cause="micro_batch_missing",
    # A hook on `.grad` is not called where the caller adds the gradient: nothing is held.
    or_cause="not_reduced",
)
class HoldsFirstGradient(PlainGrads):
    """Remembers the gradient tensor, which `create_graph=True` replaces."""

    @override
    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.hold)
            self.handles.append(hook)

    def hold(self, parameter: nn.Parameter) -> None:
        """Keep the first gradient tensor of a step."""
        if parameter not in self.held and parameter.grad is not None:
            self.held[parameter] = parameter.grad

    @override
    def wait(self) -> None:
        for parameter, gradient in self.held.items():
            self.reduce(gradient)
            parameter.grad = gradient.detach()

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.held = {}
