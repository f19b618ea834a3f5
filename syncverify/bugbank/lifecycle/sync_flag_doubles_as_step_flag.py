"""One flag says both to reduce and to start over, and it is set each time.

Reported in huggingface/accelerate#2790.
"""

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.each_micro_batch import ReducesEachMicroBatch
from syncverify.bugbank.entry import reported


@reported(
    "huggingface/accelerate#2790",
    trigger="2 micro-batches that are reduced each",
    violates="unreduced_stay_local",
    cause="micro_batch_missing",
)
class StepsWhenItSyncs(ReducesEachMicroBatch):
    """One flag says both to reduce and to start over, and it is set each time."""

    @override
    def add(self, parameter: nn.Parameter, reduced: torch.Tensor) -> None:
        self.sums.pop(parameter, None)
        super().add(parameter, reduced)
