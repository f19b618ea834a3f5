"""Every backward is taken for the first of a step, and overwrites the others.

Reported in allenai/open-instruct#1498.
"""

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "allenai/open-instruct#1498",
    trigger="2 micro-batches",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class KeepsLastMicroBatchOnly(MainGrads):
    """Every backward is taken for the first of a step, and overwrites the others."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        self.moved[parameter] = 0
        super().on_accumulated(slot, parameter)
