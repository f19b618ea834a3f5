"""One of two paths through the code sums and does not divide.

Reported in pytorch/torchtitan#2972.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/torchtitan#2972",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="scaled",
)
class ForgetsToDivideOnePath(AveragedMainGrads):
    """One of two paths through the code sums and does not divide."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        is_other_path = bucket is self.buckets[-1]
        return 1 if is_other_path else super().divisor(bucket)
