"""Counts of micro-batches that were not to be reduced stay, and nothing fits again.

Reported in pytorch/pytorch#187732.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#187732",
    trigger="2 ranks, 2 steps of 2 micro-batches",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # A count that is left over meets its number too early.
    or_cause="reduced_early",
)
class KeepsCounts(ViewBuckets):
    """Counts of micro-batches that were not to be reduced stay, and nothing fits again."""

    @override
    def zero_grad(self) -> None:
        kept = [bucket.counts.copy() for bucket in self.buckets]
        super().zero_grad()
        if self.required > 1:
            for bucket, counts in zip(self.buckets, kept, strict=True):
                bucket.counts = counts
