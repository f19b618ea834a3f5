"""Reported in meta-pytorch/torchrec#4121."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads
from syncverify.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    Bucket,
    ViewBuckets,
)
from syncverify.bugbank.entry import Entry


class ReducesAgainInWait(ViewBuckets):
    """A wrapper inside of a wrapper reduces too, and a mean of means hides it."""

    capabilities = AveragedMainGrads.capabilities

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


ENTRY = Entry(
    subject=ReducesAgainInWait,
    twin=AveragedViewBuckets,
    source="meta-pytorch/torchrec#4121",
    trigger="2 ranks",
    silent=True,
    property="each_bucket_reduced_once_per_step",
    cause="reduced_twice",
)
