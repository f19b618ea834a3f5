"""Gradients that are undefined, shared, sparse or complex."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.wrong.sizes import local_of, reduce_groups_of
from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads


@wrong(
    trigger="`W @ x + b`: two parameters get one gradient tensor; 2 ranks",
    needs=("use=added_to_another",),
)
class ReducesInTensorHooks(PlainGrads):
    """A tensor hook reduces the gradient in place, which another consumer may share."""

    capabilities = PlainGrads.capabilities

    @override
    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            self.handles.append(parameter.register_hook(self.hook_of(parameter)))

    def hook_of(self, parameter: nn.Parameter) -> Any:
        """Return a hook that reduces the only gradient of a step in place."""

        def hook(gradient: torch.Tensor) -> None:
            self.counts[parameter] += 1
            if self.required == 1:
                self.reduce(gradient)

        return hook

    @override
    def wait(self) -> None:
        if self.required > 1:
            super().wait()


@wrong(
    trigger="2 ranks, a parameter whose only gradient is undefined",
    needs=("used=undefined",),
)
class ExpectsEveryGradient(CountsHookCalls):
    """A parameter is marked as ready by a hook, and `.grad` is not looked at."""

    @override
    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required:
            if parameter.grad is None:
                parameter.grad = torch.ones_like(parameter)
            self.reduce(parameter.grad)


@wrong(trigger="2 ranks, sparse gradients of other rows")
class ReducesSparseValues(PlainGrads):
    """The values of sparse gradients are summed, whatever their rows are."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if local_of(gradient).is_sparse:
            values = local_of(gradient).coalesce().values()
            for group in reduce_groups_of(gradient):
                dist.all_reduce(values, group=group)
        else:
            super().reduce(gradient)


@wrong(trigger="2 ranks, a complex parameter")
class ReducesRealParts(PlainGrads):
    """The real part of a complex gradient is reduced, and the rest is left local."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        if part.is_complex() and isinstance(gradient, DTensor):
            real = part.real.contiguous()
            for group in reduce_groups_of(gradient):
                dist.all_reduce(real, group=group)
            part.real.copy_(real)
        else:
            super().reduce(gradient)
