"""Buckets are launched as they become ready, which differs between ranks.

Reported in NVIDIA/Megatron-LM#107.
"""

from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait, is_odd
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/Megatron-LM#107",
    trigger="2 ranks, 2 buckets of one size",
    violates="collectives_match_across_ranks",
    cause="bucket_mismatch",
    # Buckets of other dtypes or sizes differ in what is sent already.
    or_cause="collective_mismatch",
)
class SwapsBuckets(ReducesInWait):
    """Buckets are launched as they become ready, which differs between ranks."""

    @override
    def order(self) -> list[Bucket]:
        return self.buckets[::-1] if is_odd() else self.buckets
