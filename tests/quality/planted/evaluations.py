"""A defect that only forwards without a backward show, and its right twin."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tests.quality.planted.planted import (
    ACCUMULATE,
    built_in,
    planted,
    right,
    training,
)
from tests.quality.planted.watching import RunsMicroBatches

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


OTHERS = built_in(
    *("synchronizer", "ddp", "fsdp2", "hsdp", "replicate"), scenarios=(EVALUATED,)
)
