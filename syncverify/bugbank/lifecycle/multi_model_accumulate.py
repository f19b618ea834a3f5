"""Two models count their micro-batches in one place, which counts twice as fast.

Reported in huggingface/accelerate#1708.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "huggingface/accelerate#1708",
    trigger="2 ranks, 2 groups of parameters",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    # A count that goes up by two never meets an odd number.
    or_cause="not_reduced",
)
class CountsForAllModels(ViewBuckets):
    """Two models count their micro-batches in one place, which counts twice as fast."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        models = len(self.param_groups)
        return all(
            bucket.counts[p] * models == self.required for p in bucket.parameters
        )
