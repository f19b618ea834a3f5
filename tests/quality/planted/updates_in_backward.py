"""Synchronizers beside hooks of the user that update parameters inside of backward."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.scenario.contract import Capabilities

PROMISES = Capabilities(varying_accumulations=True, features=frozenset({"update"}))


class ReducesBeforeLaterHooks(CountsHookCalls):
    """Correct: sums each gradient in a hook, before the hook returns."""

    capabilities = PROMISES


class StartsInItsHook(ReducesBeforeLaterHooks):
    """Starts each sum in the hook of its parameter; later hooks read before the sum has ended."""

    @override
    def bind(self) -> None:
        super().bind()
        self.works: list[dist.Work] = []

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for axis_group in _groups_of(gradient):
            self.finish()
            part = local(gradient).detach()
            work = dist.all_reduce(part, group=axis_group, async_op=True)
            assert work is not None
            self.works.append(work)

    def finish(self) -> None:
        """Wait for all sums that have started."""
        while self.works:
            self.works.pop().wait()

    @override
    def wait(self) -> None:
        self.finish()


def _groups_of(gradient: torch.Tensor) -> list[dist.ProcessGroup]:
    if not isinstance(gradient, DTensor):
        return []
    return [
        gradient.device_mesh.get_group(axis)
        for axis, placement in enumerate(gradient.placements)
        if placement.is_replicate()
    ]


class WaitsBeforeItReturns(StartsInItsHook):
    """Correct: waits for each sum in the hook that has started the sum."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        super().reduce(gradient)
        self.finish()


class ReducesAfterBackward(PlainGrads):
    """Sums in `wait()` the gradients that are left."""

    capabilities = PROMISES


class ReadsReleasedGradients(ReducesBeforeLaterHooks):
    """Looks in `wait()` at gradients that the hooks have dropped by then."""

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            parameter.grad.detach()


class CallsSteps(ReducesBeforeLaterHooks):
    """Correct: calls the user's function in a hook."""

    steps: tuple[Callable[[torch.Tensor], None], ...] = ()

    def step_in_backward(self, step: Callable[[torch.Tensor], None]) -> None:
        """Take the function."""
        self.steps = (step,)

    @override
    def note(self, parameter: nn.Parameter) -> None:
        super().note(parameter)
        if self.counts[parameter] == self.required:
            for step in self.steps:
                step(parameter)


class ForgetsSteps(CallsSteps):
    """Does not call the function for vectors."""

    @override
    def note(self, parameter: nn.Parameter) -> None:
        if parameter.dim() == 1:
            ReducesBeforeLaterHooks.note(self, parameter)
        else:
            super().note(parameter)
