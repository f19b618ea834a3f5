"""The optimizer that shows the gradients which it is given."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import override


class RevealingOptimizer(torch.optim.Optimizer):
    """Sets each parameter to its gradient, in place of an update.

    A wrapper such as ZeRO hands each rank the gradients of a part of the parameters, and
    sends the parameters to the other ranks after the step. With this optimizer inside, the
    parameters that arrive are the reduced gradients, without rounding, whatever the wrapper
    keeps in between.

    Args:
        params: Parameters or groups of parameters.
        lr: Learning rate. Wrappers set it, and `step()` ignores it.
        defaults: Other options of groups, which `step()` ignores too.
    """

    def __init__(self, params: Any, lr: float = 0.0, **defaults: Any) -> None:
        super().__init__(params, {"lr": lr, **defaults})

    @override
    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure
        """Set each parameter that has a gradient to the gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.copy_(parameter.grad)
