"""The mean divides by the number of elements instead of the number of ranks.

Reported in meta-pytorch/torchcomms#287.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "meta-pytorch/torchcomms#287",
    trigger="2 ranks, a bucket with other than 2 elements",
    violates="gradient_equals_reference",
    cause="scaled",
)
class DividesByElements(AveragedMainGrads):
    """The mean divides by the number of elements instead of the number of ranks."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        return bucket.buffer.numel() if bucket.groups else 1
