"""Work handles are not kept, so that wait() has nothing to wait for.

Reported in pytorch/pytorch#122807.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#122807",
    trigger="2 ranks",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
)
class NeverWaits(ViewBuckets):
    """Work handles are not kept, so that wait() has nothing to wait for."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        bucket.work = None
