"""Counts in a tensor hook, which `torch.autograd.grad` calls as well.

Reported in pytorch/pytorch#47562.
"""

from typing import Any

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#47562",
    trigger="2 ranks, torch.autograd.grad beside backward",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    # A hook on `.grad` is not called where the caller adds the gradient.
    or_cause="not_reduced",
    twin=PlainGrads,
)
class CountsArrivals(CountsHookCalls):
    """Counts in a tensor hook, which `torch.autograd.grad` calls as well."""

    capabilities = PlainGrads.capabilities

    @override
    def bind(self) -> None:
        super().bind()
        self.arrivals = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            self.handles.append(parameter.register_hook(self.arrival(parameter)))

    def arrival(self, parameter: nn.Parameter) -> Any:
        """Make a hook that counts."""

        def hook(_: torch.Tensor) -> None:
            self.arrivals[parameter] += 1

        return hook

    @override
    def note(self, parameter: nn.Parameter) -> None:
        arrived = self.arrivals[parameter] == self.required
        if arrived and parameter.grad is not None:
            self.reduce(parameter.grad)

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.arrivals = dict.fromkeys(self.parameters, 0)
