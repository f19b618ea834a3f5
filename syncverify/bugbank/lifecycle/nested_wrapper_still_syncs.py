"""A wrapper inside of a wrapper reduces too, and a mean of means hides it.

Reported in meta-pytorch/torchrec#4121.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    Bucket,
    ViewBuckets,
)
from syncverify.bugbank.entry import reported


@reported(
    "meta-pytorch/torchrec#4121",
    trigger="2 ranks",
    violates="each_bucket_reduced_once_per_step",
    cause="reduced_twice",
    twin=AveragedViewBuckets,
)
class ReducesAgainInWait(ViewBuckets):
    """A wrapper inside of a wrapper reduces too, and a mean of means hides it."""

    capabilities = AveragedViewBuckets.capabilities

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            self.average(bucket)
            self.launch(bucket)
            self.average(bucket)

    def average(self, bucket: Bucket) -> None:
        """Divide a bucket by the number of its ranks."""
        self.finish(bucket)
        for group in bucket.groups:
            bucket.buffer.div_(group.size())
