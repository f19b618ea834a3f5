"""Planted defects of hooks, beside those of the bug bank."""

import threading
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from syncverify.bugbank.autograd.reentrant_checkpoint_fires_twice import (
    CountsCallsOfNestedBackwards,
)
from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads


class CountsPerThread(CountsCallsOfNestedBackwards):
    """Counts on the thread of `bind()` only, and so misses gradients of other threads."""

    def bind(self) -> None:
        self.local = threading.local()
        self.local.is_ours = True
        super().bind()

    def note(self, parameter: nn.Parameter) -> None:
        if hasattr(self.local, "is_ours"):
            super().note(parameter)


class TakesArrivals(PlainGrads):
    """Sums the gradients that its tensor hook sees, which later hooks replace."""

    def bind(self) -> None:
        self.sums: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            self.handles.append(parameter.register_hook(self.taking(parameter)))

    def taking(self, parameter: nn.Parameter) -> Any:
        def hook(gradient: torch.Tensor) -> None:
            dtype = parameter.grad_dtype or parameter.dtype
            seen = gradient.detach().to(dtype)
            before = self.sums.get(parameter)
            self.sums[parameter] = seen.clone() if before is None else before + seen

        return hook

    def wait(self) -> None:
        for parameter, summed in self.sums.items():
            parameter.grad = summed
        super().wait()

    def zero_grad(self) -> None:
        super().zero_grad()
        self.sums = {}


class CountsEnds(CountsCallsOfNestedBackwards):
    """Takes each end of a backward for the end of a micro-batch."""

    def bind(self) -> None:
        self.num_ends, self.is_queued = 0, False
        super().bind()

    def note(self, parameter: nn.Parameter) -> None:
        if not self.is_queued:
            self.is_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def end(self) -> None:
        self.is_queued = False
        self.num_ends += 1
        if self.num_ends == self.required:
            PlainGrads.wait(self)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_ends = 0


class ReducesInItsHook(CountsHookCalls):
    """Later hooks of the user are not waited for."""


class ReducesWhatTensorHooksGet(PlainGrads):
    """A tensor hook reduces in place what another parameter may get as well."""

    capabilities = replace(PlainGrads.capabilities, reduces_each_micro_batch=True)

    def bind(self) -> None:
        for parameter in self.parameters:
            self.handles.append(parameter.register_hook(self.reduced))

    def reduced(self, gradient: torch.Tensor) -> None:
        self.reduce(gradient)

    def wait(self) -> None:
        pass
