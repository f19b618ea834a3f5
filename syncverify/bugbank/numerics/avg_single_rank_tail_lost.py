"""Reported in NVIDIA/nccl#1950."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import Entry


class LosesTailOfOneRank(AveragedMainGrads):
    """A mean over one rank is written elsewhere, all but its last 8 elements."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if not bucket.groups:
            bucket.buffer[-8:] = 0


ENTRY = Entry(
    subject=LosesTailOfOneRank,
    twin=AveragedMainGrads,
    source="NVIDIA/nccl#1950",
    trigger="1 rank",
    silent=True,
    property="unreduced_stay_local",
    cause="never_written",
)
