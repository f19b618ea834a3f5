"""The loop that defers buckets stops at the first one without a group.

Reported in speechbrain/speechbrain#2010.
"""

from itertools import takewhile

from typing_extensions import override

from syncverify.bugbank.bases.flags import FlagsMicroBatches
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class DefersEachBucket(FlagsMicroBatches):
    """Right: no bucket is reduced before the micro-batch with the flag."""

    @override
    def may_reduce(self, bucket: Bucket) -> bool:
        return self.is_syncing or bucket not in self.deferred()

    def deferred(self) -> list[Bucket]:
        """List the buckets that wait for the flag."""
        return self.buckets


@reported(
    "speechbrain/speechbrain#2010",
    trigger="2 ranks, 2 micro-batches, a bucket without a group before another",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class StopsAtUnwrapped(DefersEachBucket):
    """The loop that defers buckets stops at the first one without a group."""

    @override
    def deferred(self) -> list[Bucket]:
        return [*takewhile(lambda bucket: bucket.groups, self.buckets)]
