"""Reported in deepspeedai/DeepSpeed#8154."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import Entry


class ScalesInEachStage(AveragedMainGrads):
    """Each stage scales what the stage after it has scaled already."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        stages_after = len(self.buckets) - 1 - self.buckets.index(bucket)
        return int(super().divisor(bucket) ** (1 + stages_after))


ENTRY = Entry(
    subject=ScalesInEachStage,
    twin=AveragedMainGrads,
    source="deepspeedai/DeepSpeed#8154",
    trigger="2 ranks, 2 buckets",
    silent=True,
    property="gradient_equals_reference",
    cause="scaled",
)
