"""Reported in huggingface/accelerate#1708."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import Entry


class CountsForAllModels(ViewBuckets):
    """Two models count their micro-batches in one place, which counts twice as fast."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        models = len(self.param_groups)
        return all(
            bucket.counts[p] * models == self.required for p in bucket.parameters
        )


ENTRY = Entry(
    subject=CountsForAllModels,
    twin=ViewBuckets,
    source="huggingface/accelerate#1708",
    trigger="2 ranks, 2 groups of parameters",
    silent=True,
    property="gradient_equals_reference",
    cause="reduced_early",
)
