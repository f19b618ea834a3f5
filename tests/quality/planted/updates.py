"""Synchronizers beside a caller that updates parameters, inside of backward and between steps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from studies.redteam.wrong.training import (
    LogsOnASideStream,
    RestoresParameters,
    SubtractsWhatItHandedOut,
)
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from tests.quality.planted.planted import (
    ACCUMULATE,
    EXCLUSIVE,
    LIVE,
    READ,
    UNBIND,
    UNREDUCED,
    VALUE,
    ZERO,
    built_in,
    plant,
    planted,
    right,
    training,
)
from tests.quality.planted.watching import RunsMicroBatches

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


# The caller writes gradients and parameters between steps, as an optimizer does.


UNREAD = (READ, "read_before_reduced")
TWO_STEPS = training(accumulations=(1, 1), cap_bytes=16)
GRID = MeshSpec((2, 2), ("dp", "tp"))
# Ranks that hold the same part of a parameter start with equal values, others not.
LOCAL_VALUES = tuple(
    training(mesh=GRID, cap_bytes=1024, parameter={"placements": placements})
    for placements in (None, ("S0", "R"), ("R", "S0"))
)


@planted(UNREAD, scenarios=(TWO_STEPS,))
class ReadsParametersLate(SideStreams):
    """A side stream copies the parameters after `wait()`, and joins only in `zero_grad()`."""

    def wait(self) -> None:
        super().wait()
        self.fork()
        with torch.cuda.stream(self.comm), torch.no_grad():
            self.copies = [
                local(parameter).clone()
                for bucket in self.buckets
                for parameter in bucket.parameters
            ]

    def zero_grad(self) -> None:
        self.join()
        super().zero_grad()


@planted((UNBIND, "parameter_changed"), scenarios=LOCAL_VALUES, is_alone=True)
class BroadcastsEverything(ViewBuckets):
    """`bind()` copies every parameter from rank 0, whether its ranks replicate it or not."""

    def bind(self) -> None:
        super().bind()
        for group in self.param_groups:
            for parameter in group:
                dist.broadcast(local(parameter), src=0)


# A defect that only forwards without a backward show, and its right twin.


PLAIN_STEPS = training(shape=(3,), accumulations=(2, 1), cap_bytes=24)
EVALUATED = replace(PLAIN_STEPS, evaluation="before_steps")


@right(EVALUATED)
class TellsForwardsApart(RunsMicroBatches):
    """Correct: reduces in the backward of the last forward that builds a graph."""

    def bind(self) -> None:
        super().bind()
        self.num_forwards = 0

    def counts(self) -> bool:
        """Tell whether a backward follows."""
        return torch.is_grad_enabled()

    def forward(self, compute_loss: Callable[[], Any]) -> Any:
        self.num_forwards += self.counts()
        return compute_loss()

    def run_micro_batch(
        self,
        compute_loss: Callable[[], Any],
        *,
        is_last: bool,
        run_backward: Callable[[Any], None] = torch.Tensor.backward,
    ) -> None:
        run_backward(self.forward(compute_loss))
        if self.num_forwards == self.required:
            super().wait()

    def evaluate(self, compute_loss: Callable[[], Any]) -> None:
        self.forward(compute_loss)

    def wait(self) -> None:
        pass

    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_forwards = 0


@planted(
    (ACCUMULATE, "reduced_early"), scenarios=(EVALUATED,), elsewhere=(PLAIN_STEPS,)
)
class CountsAllForwards(TellsForwardsApart):
    """Takes each forward for one of a micro-batch."""

    def counts(self) -> bool:
        return True


OTHERS = [
    *built_in(
        *("ddp", "fsdp2", "hsdp", "replicate-fsdp"),
        "synchronizer",  # refuses a gradient that is gone
        scenarios=(IN_BACKWARD,),
    ),
    plant(RestoresParameters, (UNBIND, "parameter_changed"), scenarios=(TWO_STEPS,)),
    plant(SubtractsWhatItHandedOut, (ZERO, "gradient_left"), scenarios=(TWO_STEPS,)),
    plant(LogsOnASideStream, UNREAD, scenarios=(TWO_STEPS,)),
    *built_in(
        *("synchronizer", "ddp", "fsdp2", "hsdp", "replicate"), scenarios=(EVALUATED,)
    ),
]
