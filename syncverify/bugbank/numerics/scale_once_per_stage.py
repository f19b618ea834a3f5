"""Each stage scales gradients that the stage after it has scaled already.

Reported in deepspeedai/DeepSpeed#8154.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "deepspeedai/DeepSpeed#8154",
    trigger="2 ranks, 2 buckets",
    violates="gradient_equals_reference",
    cause="scaled",
)
class ScalesInEachStage(AveragedMainGrads):
    """Each stage scales gradients that the stage after it has scaled already."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        stages_after = len(self.buckets) - 1 - self.buckets.index(bucket)
        return int(super().divisor(bucket) ** (1 + stages_after))
