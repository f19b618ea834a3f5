"""Numbers that are no gradients may be reduced early; copies of gradients may not."""

from typing import ClassVar

import torch
import torch.distributed as dist

from syncverify.scenario.contract import Capabilities
from tests.quality.planted.planted import ACCUMULATE, planted, right, training
from tests.quality.planted.watching import HearsGradients

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
