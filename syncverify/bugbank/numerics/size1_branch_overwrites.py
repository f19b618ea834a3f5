"""Reported in ServiceNow/Fast-LLM#551."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import Entry


class OverwritesUnreduced(MainGrads):
    """What needs no reduction is copied into its slot by every micro-batch, not added."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if not self.groups_of(parameter):
            self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)


ENTRY = Entry(
    subject=OverwritesUnreduced,
    twin=MainGrads,
    source="ServiceNow/Fast-LLM#551",
    trigger="1 rank, 2 micro-batches",
    silent=True,
    property="unreduced_stay_local",
    cause="micro_batch_missing",
)
