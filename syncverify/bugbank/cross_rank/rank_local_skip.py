"""A rank that finds its own gradients useless does not reduce them.

Reported in facebookresearch/fairscale#754.
"""

from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait, is_odd
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "facebookresearch/fairscale#754",
    trigger="2 ranks, of which one skips a bucket",
    violates="every_wait_completes",
    cause="deadlock",
    # The next bucket of the rank that skips meets the one that it skipped.
    or_cause="collective_mismatch",
    silent=False,
)
class SkipsBucketsByItself(ReducesInWait):
    """A rank that finds its own gradients useless does not reduce them."""

    @override
    def order(self) -> list[Bucket]:
        return self.buckets[:-1] if is_odd() else self.buckets
