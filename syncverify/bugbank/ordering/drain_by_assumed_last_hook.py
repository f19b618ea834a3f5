"""Only the bucket that is taken for the last one waits for all in flight.

Reported in ROCm/pytorch#3500.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "ROCm/pytorch#3500",
    trigger="2 ranks, 2 buckets",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
    uses_streams=True,
)
class DrainsInOneHook(SideStreams):
    """Only the bucket that is taken for the last one waits for all in flight."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if bucket is self.buckets[0]:
            SideStreams.wait(self)

    @override
    def wait(self) -> None:
        self.join()
