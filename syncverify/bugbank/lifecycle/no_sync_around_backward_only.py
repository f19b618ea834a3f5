"""Reported in pytorch/PiPPy#1133."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads
from syncverify.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    Bucket,
    ViewBuckets,
)
from syncverify.bugbank.entry import Entry


class ReducesEveryMicroBatch(ViewBuckets):
    """The flag that defers the reduction is set around the wrong calls.

    The mean of a mean is itself, so that all values are right: it is only slow.
    """

    capabilities = AveragedMainGrads.capabilities

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return len({bucket.counts[parameter] for parameter in bucket.parameters}) == 1

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        self.finish(bucket)
        for group in bucket.groups:
            bucket.buffer.div_(group.size())


ENTRY = Entry(
    subject=ReducesEveryMicroBatch,
    twin=AveragedViewBuckets,
    source="pytorch/PiPPy#1133",
    trigger="2 ranks, 2 micro-batches",
    silent=True,
    property="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
