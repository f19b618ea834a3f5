"""Reported in modelscope/FunASR#3472."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import Entry


class ReducesFirstMicroBatch(ViewBuckets):
    """A bucket is launched by the first micro-batch of a step instead of the last."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[parameter] == 1 for parameter in bucket.parameters)


ENTRY = Entry(
    subject=ReducesFirstMicroBatch,
    twin=ViewBuckets,
    source="modelscope/FunASR#3472",
    trigger="2 ranks, 2 micro-batches",
    silent=True,
    property="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
