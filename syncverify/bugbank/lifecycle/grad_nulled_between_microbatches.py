"""A batch of another length makes the stage start over, without its gradients.

Reported in NVIDIA-NeMo/Automodel#3530.
"""

from collections.abc import Callable

import torch
from typing_extensions import override

from syncverify.bugbank.bases.plain_grads import CountsHookCalls, PlainGrads
from syncverify.bugbank.entry import reported


class KeepsGradients(PlainGrads):
    """Right: a batch of another length changes nothing about gradients."""

    capabilities = CountsHookCalls.capabilities

    @override
    def bind(self) -> None:
        self.num_run = 0

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run a micro-batch; every other one is of another length."""
        if self.num_run % 2:
            self.prepare_for_length()
        self.num_run += 1
        compute_loss().backward()

    def prepare_for_length(self) -> None:
        """Need nothing."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.num_run = 0


@reported(
    "NVIDIA-NeMo/Automodel#3530",
    trigger="2 micro-batches of different lengths",
    violates="accumulation_is_local_until_reduced",
    cause="micro_batch_missing",
)
class DropsGradientsForNewLength(KeepsGradients):
    """A batch of another length makes the stage start over, without its gradients."""

    @override
    def prepare_for_length(self) -> None:
        PlainGrads.zero_grad(self)
