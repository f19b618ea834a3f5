"""Reported in allenai/open-instruct#1498."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import Entry


class KeepsLastMicroBatchOnly(MainGrads):
    """Every backward is taken for the first of a step, and overwrites the others."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)


ENTRY = Entry(
    subject=KeepsLastMicroBatchOnly,
    twin=MainGrads,
    source="allenai/open-instruct#1498",
    trigger="2 micro-batches",
    silent=True,
    property="unreduced_stay_local",
    cause="micro_batch_missing",
)
