"""The micro-step starts at 0 in the first window and at -1 in the others.

Reported in deepspeedai/DeepSpeed#6550.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "deepspeedai/DeepSpeed#6550",
    trigger="2 steps of 2 micro-batches",
    violates="gradient_equals_reference",
    cause="micro_batch_missing",
)
class CountsFromMinusOne(MainGrads):
    """The micro-step starts at 0 in the first window and at -1 in the others."""

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        for parameter in self.moved:
            self.moved[parameter] = -1
