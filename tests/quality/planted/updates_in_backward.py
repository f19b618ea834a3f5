"""Synchronizers beside hooks of the user that update parameters inside of backward."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.quality.planted.planted import (
    EXCLUSIVE,
    LIVE,
    UNREDUCED,
    VALUE,
    built_in,
    planted,
    right,
)

AFTER_WAIT = Scenario(
    MeshSpec((2,), ("dp",)),
    (
        ParameterSpec("p0", (3,), ("R",)),
        ParameterSpec("p1", (2, 2), ("R",)),
        ParameterSpec("p2", (2,), ("R",), requires_grad=False),
    ),
    (2, 1),
    24,
)
IN_BACKWARD = replace(AFTER_WAIT, update="in_backward")
SHOWN = {"scenarios": (IN_BACKWARD,), "elsewhere": (AFTER_WAIT,)}
PROMISES = Capabilities(varying_accumulations=True, features=frozenset({"update"}))


@right(IN_BACKWARD)
class ReducesBeforeLaterHooks(CountsHookCalls):
    """Correct: sums each gradient in a hook, before the hook returns."""

    capabilities = PROMISES


@planted((EXCLUSIVE, "touched_in_flight"), **SHOWN)
class StartsInItsHook(ReducesBeforeLaterHooks):
    """Starts each sum in the hook of its parameter; later hooks read before the sum has ended."""

    def bind(self) -> None:
        super().bind()
        self.works: list[dist.Work] = []

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


@right(IN_BACKWARD)
class WaitsBeforeItReturns(StartsInItsHook):
    """Correct: waits for each sum in the hook that has started the sum."""

    def reduce(self, gradient: torch.Tensor) -> None:
        super().reduce(gradient)
        self.finish()


@planted(UNREDUCED, **SHOWN)
class ReducesAfterBackward(PlainGrads):
    """Sums in `wait()` the gradients that are left."""

    capabilities = PROMISES


@planted((LIVE, "raised_AttributeError"), **SHOWN)
class ReadsReleasedGradients(ReducesBeforeLaterHooks):
    """Looks in `wait()` at gradients that the hooks have dropped by then."""

    def wait(self) -> None:
        for parameter in self.parameters:
            parameter.grad.detach()


@right(IN_BACKWARD)
class CallsSteps(ReducesBeforeLaterHooks):
    """Correct: calls the user's function in a hook."""

    steps: tuple[Callable[[torch.Tensor], None], ...] = ()

    def step_in_backward(self, step: Callable[[torch.Tensor], None]) -> None:
        """Take the function."""
        self.steps = (step,)

    def note(self, parameter: nn.Parameter) -> None:
        super().note(parameter)
        if self.counts[parameter] == self.required:
            for step in self.steps:
                step(parameter)


@planted((VALUE, "gradient_missing"), **SHOWN)
class ForgetsSteps(CallsSteps):
    """Does not call the function for vectors."""

    def note(self, parameter: nn.Parameter) -> None:
        if parameter.dim() == 1:
            ReducesBeforeLaterHooks.note(self, parameter)
        else:
            super().note(parameter)


OTHERS = built_in(
    *("ddp", "fsdp2", "hsdp", "replicate-fsdp"),
    "synchronizer",  # refuses a gradient that is gone
    scenarios=(IN_BACKWARD,),
)
