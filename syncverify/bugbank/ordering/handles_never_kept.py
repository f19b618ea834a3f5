"""The list of handles to wait for is never filled.

Reported in pytorch/pytorch#122849.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#122849",
    trigger="2 ranks, a side stream",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
    uses_streams=True,
)
class LosesHandles(SideStreams):
    """The list of handles to wait for is never filled."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        bucket.work = None
