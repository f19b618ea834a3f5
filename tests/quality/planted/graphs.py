"""Planted defects that one feature of the autograd engine shows, and a correct twin."""

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities


class CountsBackwards:
    """Correct: reduces in `wait()`, if each parameter got its gradients by then."""

    capabilities = Capabilities(
        varying_accumulations=True, outside=ALL_BEYOND - {"use", "backward"}
    )

    def __init__(
        self, groups: list[list[nn.Parameter]], size_mb: float, count: int
    ) -> None:
        self.parameters = [p for group in groups for p in group if p.requires_grad]
        self.required = count
        self.handles: list[Any] = []

    def set_required_accumulations(self, count: int) -> None:
        self.required = count

    def bind(self) -> None:
        pass

    def reduce(self, gradient: torch.Tensor) -> None:
        if isinstance(gradient, DTensor):
            for axis, placement in enumerate(gradient.placements):
                if placement.is_replicate():
                    group = gradient.device_mesh.get_group(axis)
                    dist.all_reduce(gradient.to_local().detach(), group=group)

    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                self.reduce(parameter.grad)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.zero_grad()


class CountsHookCalls(CountsBackwards):
    """Reduces at the n-th call of a hook, which a reentrant backward calls more often.

    Source: pytorch/pytorch#43307.
    """

    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required:
            self.reduce(parameter.grad)

    def wait(self) -> None:
        pass

    def zero_grad(self) -> None:
        super().zero_grad()
        self.counts = dict.fromkeys(self.parameters, 0)


class CountsArrivals(CountsHookCalls):
    """Counts in a tensor hook, which `torch.autograd.grad` calls as well."""

    def bind(self) -> None:
        super().bind()
        self.arrivals = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            self.handles.append(parameter.register_hook(self.arrival(parameter)))

    def arrival(self, parameter: nn.Parameter) -> Any:
        def hook(_: torch.Tensor) -> None:
            self.arrivals[parameter] += 1

        return hook

    def note(self, parameter: nn.Parameter) -> None:
        if self.arrivals[parameter] == self.required:
            self.reduce(parameter.grad)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.arrivals = dict.fromkeys(self.parameters, 0)


class CountsPerThread(CountsHookCalls):
    """Counts on the thread that bound it only, and so misses what others bring."""

    def bind(self) -> None:
        self.local = threading.local()
        self.local.is_ours = True
        super().bind()

    def note(self, parameter: nn.Parameter) -> None:
        if hasattr(self.local, "is_ours"):
            super().note(parameter)


class TakesArrivals(CountsBackwards):
    """Sums up what its tensor hook sees, which later hooks replace."""

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


class HoldsFirstGradient(CountsBackwards):
    """Remembers the gradient tensor, which `create_graph=True` replaces."""

    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.hold)
            self.handles.append(hook)

    def hold(self, parameter: nn.Parameter) -> None:
        if parameter not in self.held:
            self.held[parameter] = parameter.grad

    def wait(self) -> None:
        for parameter, gradient in self.held.items():
            self.reduce(gradient)
            parameter.grad = gradient.detach()

    def zero_grad(self) -> None:
        super().zero_grad()
        self.held = {}


class CountsEnds(CountsHookCalls):
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
            CountsBackwards.wait(self)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_ends = 0
