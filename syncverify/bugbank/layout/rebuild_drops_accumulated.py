"""Gradients point to the new buckets; earlier accumulations stay in the old ones.

Reported in InfiniTensor/InfiniTrain#183.
"""

from collections.abc import Callable

import torch
from typing_extensions import override

from syncverify.bugbank.bases.flags import FlagsMicroBatches
from syncverify.bugbank.entry import reported


class RebuildsOnce(FlagsMicroBatches):
    """Right: buckets are made anew once, between micro-batches, and keep their content."""

    @override
    def bind(self) -> None:
        self.is_rebuilt = False
        super().bind()

    @override
    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        super().run_micro_batch(compute_loss, is_last=is_last)
        if not self.is_rebuilt and not is_last:
            self.is_rebuilt = True
            for bucket in self.buckets:
                bucket.buffer = self.rebuilt(bucket.buffer)
                bucket.attach(bucket.buffer)

    def rebuilt(self, buffer: torch.Tensor) -> torch.Tensor:
        """Make another buffer in its place."""
        return buffer.clone()


@reported(
    "InfiniTensor/InfiniTrain#183",
    trigger="2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="micro_batch_missing",
)
class DropsWhatWasAccumulated(RebuildsOnce):
    """Gradients point to the new buckets; earlier accumulations stay in the old ones."""

    @override
    def rebuilt(self, buffer: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(buffer)
