"""A bucket is launched by the first micro-batch of a step instead of the last.

Reported in modelscope/FunASR#3472.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "modelscope/FunASR#3472",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class ReducesFirstMicroBatch(ViewBuckets):
    """A bucket is launched by the first micro-batch of a step instead of the last."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[parameter] == 1 for parameter in bucket.parameters)
