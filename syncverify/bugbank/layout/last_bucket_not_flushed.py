"""Buckets are sent when they are full; the last one, partly filled, never is.

Reported in facebookresearch/fairscale#435.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.bases.placements import local_bytes
from syncverify.bugbank.entry import reported


@reported(
    "facebookresearch/fairscale#435",
    trigger="2 ranks, a bucket that is not full",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class LosesLastBucket(MainGrads):
    """Buckets are sent when they are full; the last one, partly filled, never is."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        if sum(map(local_bytes, bucket.slots)) >= self.cap_bytes:
            super().reduce(bucket)
