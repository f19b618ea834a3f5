"""Reported in facebookresearch/fairscale#780."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import Entry


class LaunchesOnFirstGradient(SideStreams):
    """A bucket is launched after its first gradient, while others are still added."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return bucket.counts.total() == 1


ENTRY = Entry(
    subject=LaunchesOnFirstGradient,
    twin=SideStreams,
    source="facebookresearch/fairscale#780",
    trigger="2 ranks, 2 gradients that come to one bucket",
    silent=True,
    property="gradient_equals_reference",
    cause="micro_batch_missing",
    uses_streams=True,
)
