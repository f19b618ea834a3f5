"""Gradients become views into the result, but the old buffer goes on being sent.

Reported in pytorch/pytorch#43307.
"""

from typing_extensions import override

from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#43307",
    trigger="2 ranks, 2 steps",
    violates="gradient_equals_reference",
    cause="stale",
)
class RebindsViewsToResult(ViewBuckets):
    """Gradients become views into the result, but the old buffer goes on being sent."""

    @override
    def finish(self, bucket: Bucket) -> None:
        super().finish(bucket)
        bucket.attach(bucket.buffer.clone())  # the result of a communication hook

    @override
    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts.clear()
            for parameter in bucket.parameters:
                local_grad(parameter).zero_()
