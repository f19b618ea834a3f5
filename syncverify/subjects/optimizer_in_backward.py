"""torch's optimizers inside of backward.

No other module imports the private function `_apply_optimizer_in_backward`.

DDP takes the hooks away that this function registers, and calls the optimizers by itself, once a
bucket has been reduced.

Source:
    https://github.com/pytorch/pytorch/pull/89194
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from typing_extensions import override

with warnings.catch_warnings():
    # The package compiles its optimizers as it is imported, which torch deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch.distributed.optim import _apply_optimizer_in_backward

# Attributes that torch's function puts on each parameter.
_LEFT = ("_in_backward_optimizers", "_optimizer_classes", "_optimizer_kwargs")


class _Stepper(torch.optim.Optimizer):
    """An optimizer that calls a function with each of its parameters."""

    def __init__(
        self, parameters: list[nn.Parameter], update: Callable[[torch.Tensor], None]
    ) -> None:
        super().__init__(parameters, {})
        self._update = update

    @override
    def step(self, closure: Any = None) -> Any:
        """Call the function with each parameter."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update(parameter)


def apply_in_backward(
    parameters: Iterable[nn.Parameter], update: Callable[[torch.Tensor], None]
) -> None:
    """Have a function called with each parameter in backward, before parameters are wrapped."""
    _apply_optimizer_in_backward(_Stepper, parameters, {"update": update})


def forget(parameters: Iterable[nn.Parameter]) -> None:
    """Remove what `apply_in_backward` has put on parameters."""
    for parameter in parameters:
        for name in _LEFT:
            if hasattr(parameter, name):
                delattr(parameter, name)
