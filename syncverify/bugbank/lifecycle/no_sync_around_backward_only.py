"""The flag that defers the reduction is set around the wrong calls.

Reported in pytorch/PiPPy#1133.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    Bucket,
    ViewBuckets,
)
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/PiPPy#1133",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    twin=AveragedViewBuckets,
)
class ReducesEveryMicroBatch(ViewBuckets):
    """The flag that defers the reduction is set around the wrong calls.

    The mean of a mean is itself, so that all values are right: it is only slow.
    """

    capabilities = AveragedViewBuckets.capabilities

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return len({bucket.counts[parameter] for parameter in bucket.parameters}) == 1

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        self.finish(bucket)
        for group in bucket.groups:
            bucket.buffer.div_(group.size())
