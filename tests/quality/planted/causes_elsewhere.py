"""Causes that lie elsewhere than where a run first goes wrong: hooks, state, contents."""

from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.subjects.bugbank.bases.placements import local, local_grad
from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from tests.quality.planted.planted import (
    ACCUMULATE,
    LIVE,
    UNBIND,
    VALUE,
    planted,
    right,
    training,
)
from tests.quality.planted.watching import HearsGradients

ONE, PAIR = training(shape=(3,)), training(2, shape=(3,))
TWO_STEPS = training(shape=(3,), accumulations=(2, 2))
TOO_EARLY = (VALUE, "hook_too_early")
BEFORE_ACCUMULATION: dict[str, Any] = {
    "scenarios": (ONE, training(shape=(3,), accumulations=(2,))),
    "says": ("inside of a hook that runs before",),
}


def on_grid(gradient: str) -> Scenario:
    return training(
        shape=(3,),
        mesh=MeshSpec((2, 2), ("dp", "tp")),
        parameter={"placements": ("R", "R"), "gradient": gradient},
    )


@planted(TOO_EARLY, **BEFORE_ACCUMULATION)
class InTensorHooks(CountsHookCalls):
    """Keeps gradients at zero rather than None, and reduces them in tensor hooks."""

    capabilities = Capabilities()

    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        self.zero_grad()
        for parameter in self.parameters:
            self.handles += self.hooks(parameter)

    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        return [parameter.register_hook(lambda _: self.note(parameter))]

    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)

    def unbind(self) -> None:
        PlainGrads.unbind(self)
        for parameter in self.parameters:
            parameter.grad = None


@planted(TOO_EARLY, **BEFORE_ACCUMULATION)
class InNodePrehooks(InTensorHooks):
    """Hooks the node that accumulates, before it runs."""

    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        self.nodes = [*getattr(self, "nodes", []), node]
        return [node.register_prehook(lambda _: self.note(parameter))]


@right(TWO_STEPS)
class InNodeHooks(InNodePrehooks):
    """Is right: hooks of the node itself run after it."""

    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        self.nodes = [*getattr(self, "nodes", []), node]
        return [node.register_hook(lambda *_: self.note(parameter))]


@planted((LIVE, "hook_too_early"), scenarios=(ONE,), is_alone=True)
class WithoutGradients(InTensorHooks):
    """Leaves `.grad` to autograd, so that it is None in the first hook."""

    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            parameter.grad = None

    def note(self, parameter: nn.Parameter) -> None:
        local(parameter.grad).mul_(1)  # type: ignore[arg-type]  # the mistake
        super().note(parameter)


@right(TWO_STEPS)
class InAccumulatedHooks(InTensorHooks):
    """Is right: the hooks run after the gradient was added."""

    def hooks(self, parameter: nn.Parameter) -> list[Any]:
        return [parameter.register_post_accumulate_grad_hook(self.note)]


@planted((VALUE, "not_reset"), scenarios=(TWO_STEPS,), says=("step 0 reduced it at",))
class IsNotReset(CountsHookCalls):
    """Counts on in the second step."""

    capabilities = Capabilities()

    def zero_grad(self) -> None:
        PlainGrads.zero_grad(self)


@planted(
    (UNBIND, "hook_left"), scenarios=(training(shape=(3,), ranks=1),), is_alone=True
)
class LeavesHooks(CountsHookCalls):
    """Forgets its parameters in unbind(), and leaves hooks that need them."""

    capabilities = Capabilities()

    def unbind(self) -> None:
        self.zero_grad()
        self.counts = {}


class MultipliesByFive(PlainGrads):
    """Is wrong by a factor, in every step."""

    capabilities = Capabilities()

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).mul_(5)


@planted(
    (VALUE, "bucket_mismatch"),
    scenarios=(PAIR,),
    says=("on rank 0 it is sent from element 0 of a bucket, and on rank 1 it is not",),
)
class SendsCopiesInAnOrderOfItsOwn(PlainGrads):
    """Sends copies in a buffer, in the order of parameters on rank 0 and back on rank 1."""

    capabilities = Capabilities()

    def wait(self) -> None:
        order = self.parameters[:: -1 if dist.get_rank() else 1]
        buffer = torch.cat([local_grad(each).reshape(-1) for each in order])
        dist.all_reduce(buffer)
        for parameter, part in zip(order, buffer.split(3), strict=True):
            local_grad(parameter).copy_(part)


class CopiesBackAnotherPart(SendsCopiesInAnOrderOfItsOwn):
    """Orders differ; rank 0 copies the sums back, and rank 1 keeps its own gradients."""

    def wait(self) -> None:
        own = [local_grad(each).clone() for each in self.parameters]
        super().wait()
        if dist.get_rank():
            for parameter, kept in zip(self.parameters, own, strict=True):
                local_grad(parameter).copy_(kept)


@planted(
    (VALUE, "reduced_twice"),
    scenarios=(on_grid("finite"), on_grid("nan")),
    says=("dp has ranks [0, 2] and tp has ranks [0, 1]",),
)
class SumsOverAllRanksForEachAxis(PlainGrads):
    """Takes the group of all ranks in the place of that of each mesh axis."""

    def wait(self) -> None:
        for parameter in self.parameters:
            for _ in parameter.placements:
                dist.all_reduce(local_grad(parameter))


# Numbers that are no gradients may be reduced early; copies of gradients may not.


TWO_MICRO_BATCHES = training(
    3, shape=(), accumulations=(2,), parameter={"dtype": "bfloat16"}
)
EARLY = (ACCUMULATE, "reduced_early")
SHOWN = {"scenarios": (TWO_MICRO_BATCHES,), "is_alone": True}


@right(TWO_MICRO_BATCHES)
class ReducesNumbers(HearsGradients):
    """Right: sums a number of tokens in each micro-batch."""

    capabilities: ClassVar = Capabilities()

    def accumulated(self, parameter: torch.Tensor) -> None:
        dist.all_reduce(self.number(parameter))

    def number(self, parameter: torch.Tensor) -> torch.Tensor:
        return torch.ones(1)


@right(TWO_MICRO_BATCHES)
class ReducesNorms(ReducesNumbers):
    """Right: sums the norm of all gradients, as monitors of gradient noise do."""

    def accumulated(self, parameter: torch.Tensor) -> None:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        if len(grads) == len(self.parameters):
            parts = [grad.to_local().double().reshape(-1) for grad in grads]
            dist.all_reduce(torch.cat(parts).norm())


@planted(EARLY, **SHOWN)
class ReducesHalvedCopies(ReducesNumbers):
    def number(self, parameter: torch.Tensor) -> torch.Tensor:
        return parameter.grad.to_local().double() / 2


@planted(EARLY, **SHOWN)
class ReducesNegatedBuckets(ReducesNumbers):
    def number(self, parameter: torch.Tensor) -> torch.Tensor:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return torch.stack([-grad.to_local() for grad in grads])
