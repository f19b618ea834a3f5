"""The loss is divided by the number of micro-batches, and backward divides again.

Reported in huggingface/transformers#40052.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "huggingface/transformers#40052",
    trigger="2 micro-batches",
    violates="unreduced_stay_local",
    cause="scaled",
)
class DividesByMicroBatches(AveragedMainGrads):
    """The loss is divided by the number of micro-batches, and backward divides again."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        return super().divisor(bucket) * self.required
