"""Every micro-batch overwrites the slot of a gradient without a reduction.

Reported in ServiceNow/Fast-LLM#551.
"""

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "ServiceNow/Fast-LLM#551",
    trigger="1 rank, 2 micro-batches",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class OverwritesUnreduced(MainGrads):
    """Every micro-batch overwrites the slot of a gradient without a reduction."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if not self.groups_of(parameter):
            self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)
