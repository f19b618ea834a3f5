"""zero_grad() clears the buckets that still have work, after wait() finished it.

Reported in NVIDIA/Megatron-LM#4609.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/Megatron-LM#4609",
    trigger="2 ranks, 2 steps",
    violates="zero_grad_clears",
    cause="gradient_left",
    # An accumulation into the gradient that was left shows first.
    or_cause="stale",
)
class ZeroesBucketsInFlight(ViewBuckets):
    """zero_grad() clears the buckets that still have work, after wait() finished it."""

    @override
    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts.clear()
            if bucket.work is not None or not bucket.groups:
                bucket.buffer.zero_()
