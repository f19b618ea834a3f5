"""The four kinds of synchronizers that are wrapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from syncverify.subjects.adapters.adapter import LOCAL_MEAN, Adapter


class HooksAdapter(Adapter):
    """Adapts a class that registers hooks on parameters; losses are computed beside it."""


class ModuleAdapter(Adapter):
    """Adapts a wrapper of a module, as DDP is: the forward runs through the wrapper.

    Micro-batches before the last one run in the wrapper's `no_sync()`, if it has one.
    """

    @override
    def forward(self, compute_loss: Callable[[], Any]) -> Any:
        return self.wrapped(compute_loss)


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


class OptimizerAdapter(Adapter):
    """Adapts a wrapper of an optimizer, as ZeRO is, around a `RevealingOptimizer`.

    The step turns parameters into reduced gradients, on all ranks. They become the
    gradients that the harness reads, and the parameters get their values back.
    """

    _left_by_step: Mapping[nn.Parameter, torch.Tensor | None] = MappingProxyType({})

    def step(self) -> None:
        """Reduce the gradients and run the step of the wrapped optimizer."""
        self.wrapped.step()

    @override
    @torch.no_grad()
    def synchronize(self) -> None:
        values = {parameter: parameter.clone() for parameter in self.trainable()}
        for parameter in values:
            parameter.zero_()  # a gradient that no rank has stays zero
        self.step()
        self._left_by_step = {parameter: parameter.grad for parameter in values}
        for parameter, value in values.items():
            parameter.grad = parameter.detach().clone()
            parameter.copy_(value)

    @override
    def zero_grad(self) -> None:
        # The wrapper may count on the gradients that it left, views of a buffer for example.
        for parameter, gradient in self._left_by_step.items():
            parameter.grad = gradient
        super().zero_grad()


class GlobalsAdapter(ModuleAdapter):
    """Adapts a wrapper of a module whose framework keeps state for a whole process.

    Ranks are processes, and a process plays one scenario after another, each in a new
    world. `state_of` lists the modules or classes that hold the state.
    """

    capabilities = replace(LOCAL_MEAN, needs_processes=True)
