"""The flag of the first micro-batch is captured, and replayed with all others.

Reported in pytorch/torchtitan#4505.
"""

from collections.abc import Callable

import torch
from typing_extensions import override

from syncverify.bugbank.bases.flags import FlagsMicroBatches
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/torchtitan#4505",
    trigger="2 ranks, 2 micro-batches",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class CapturesFlag(FlagsMicroBatches):
    """The flag of the first micro-batch is captured, and replayed with all others."""

    @override
    def bind(self) -> None:
        self.captured: bool | None = None
        super().bind()

    @override
    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        if self.captured is None:
            self.captured = is_last
        super().run_micro_batch(compute_loss, is_last=self.captured)
