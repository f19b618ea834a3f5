"""The last forward arms the reduction, and one more backward is still to come.

Reported in meta-pytorch/torchrec#4758.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "meta-pytorch/torchrec#4758",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class FiresOneBackwardEarly(ViewBuckets):
    """The last forward arms the reduction, and one more backward is still to come."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        awaited = max(1, self.required - 1)
        return all(bucket.counts[p] == awaited for p in bucket.parameters)
