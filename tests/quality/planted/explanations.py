"""Mistakes whose explanations have to name them, and no likelier one that was not made."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
import torch.distributed as dist

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.placements import local, local_grad
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.side_streams import SideStreams
from tests.quality.planted.planted import planted, training
from tests.quality.planted.watching import HearsGradients

ONE = training(shape=(3,))
TWO = Scenario(
    MeshSpec((2,), ("dp",)),
    (ParameterSpec("p0", (3,), ("R",)), ParameterSpec("p1", (4,), ("R",))),
    (1,),
    1 << 20,
)


@planted(
    (),
    scenarios=(TWO,),
    says=("its memory is also that of the gradient of 'p1'",),
    never={"wrong values"},
)
class GivesOneViewToTwo(PlainGrads):
    """Lets the gradients of all parameters begin at the same byte."""

    capabilities: ClassVar = Capabilities()

    def bind(self) -> None:
        buffer = torch.zeros(5)
        for parameter in self.parameters:
            part = buffer[: local(parameter).numel()].view(local(parameter).shape)
            parameter.grad = type(parameter.data).from_local(
                part, parameter.device_mesh, parameter.placements, run_check=False
            )


@planted(
    (),
    scenarios=(training(shape=(3,), ranks=3, accumulations=(12,)),),
    says=("the first 3 of 12 micro-batches are missing on every rank",),
)
class LosesTheFirstThree(HearsGradients):
    """Drops each gradient after its third micro-batch."""

    capabilities: ClassVar = Capabilities()

    def bind(self) -> None:
        super().bind()
        self.counts = dict.fromkeys(self.parameters, 0)

    def accumulated(self, parameter: torch.Tensor) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == 3:
            parameter.grad = None


@planted(
    (),
    scenarios=(replace(TWO, accumulations=(1, 1)),),
    says=("rank 1 skipped all_reduce SUM of 3 x float32",),
)
class SkipsOne(PlainGrads):
    """Does not reduce the first parameter on rank 1, from the second step on."""

    capabilities: ClassVar = Capabilities()
    step = 0

    def wait(self) -> None:
        for index, parameter in enumerate(self.parameters):
            if self.step == 0 or dist.get_rank() != 1 or index != 0:
                self.reduce(parameter.grad)
        self.step += 1


@planted(
    (),
    scenarios=(TWO,),
    says=("rank 0 has one more: all_reduce SUM of 1 x float32",),
    never={"skipped"},
)
class HasOneMore(PlainGrads):
    """Reduces a count on rank 0 alone, beside the gradients."""

    capabilities: ClassVar = Capabilities()

    def wait(self) -> None:
        count = [torch.ones(1)] if dist.get_rank() == 0 else []
        works = [
            dist.all_reduce(each, async_op=True)
            for each in [*count, *(local_grad(p) for p in self.parameters)]
        ]
        for work in works:
            work.wait()


@planted(
    (),
    scenarios=(
        Scenario(
            MeshSpec((4,), ("dp",)),
            (ParameterSpec("p0", (3,), ("R",)), ParameterSpec("p1", (17,), ("R",))),
            (12,),
            1 << 20,
        ),
    ),
    never={"rounded"},
)
class LosesSome(LosesTheFirstThree):
    """Loses a small part of the sum on one rank."""

    def accumulated(self, parameter: torch.Tensor) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == 12 and dist.get_rank() == 1:
            local_grad(parameter).sub_(1 + local_grad(parameter) % 3)


@planted(
    (),
    scenarios=(replace(ONE, accumulations=(2,)),),
    says=("they sent the parameter 'p0' itself",),
    never={"reduced_early"},
)
class SendsTheParameter(HearsGradients):
    """A hook is given the parameter, and all-reduces it."""

    capabilities: ClassVar = Capabilities()

    def accumulated(self, parameter: torch.Tensor) -> None:
        dist.all_reduce(local(parameter).detach().clone())

    def wait(self) -> None:
        pass


class Doubles(PlainGrads):
    """Doubles each sum."""

    capabilities: ClassVar = Capabilities()

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).mul_(2)


class RaisesAnId(PlainGrads):
    """Raises an error whose message has the id of an object."""

    def wait(self) -> None:
        raise KeyError(id(self), self)


class LaunchesAtOnce(SideStreams):
    """Launches a bucket at its first gradient, in a backward that it calls itself."""

    def is_ready(self, bucket: object) -> bool:
        return True

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        compute_loss().backward()
