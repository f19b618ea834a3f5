"""Reported in NVIDIA-NeMo/Automodel#3530."""

from __future__ import annotations

from collections.abc import Callable

import torch
from typing_extensions import override

from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.entry import Entry
from syncverify.features import ALL_BEYOND
from syncverify.subject import Capabilities


class KeepsGradients(PlainGrads):
    """Right: a batch of another length changes nothing about gradients."""

    capabilities = Capabilities(varying_accumulations=True, outside=ALL_BEYOND)

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


class DropsGradientsForNewLength(KeepsGradients):
    """A batch of another length makes the stage start over, without its gradients."""

    @override
    def prepare_for_length(self) -> None:
        PlainGrads.zero_grad(self)


ENTRY = Entry(
    subject=DropsGradientsForNewLength,
    twin=KeepsGradients,
    source="NVIDIA-NeMo/Automodel#3530",
    trigger="2 micro-batches of different lengths",
    silent=True,
    property="accumulation_is_local_until_reduced",
    cause="micro_batch_missing",
)
