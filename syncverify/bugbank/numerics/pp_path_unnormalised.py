"""Reported in pytorch/torchtitan#2972."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import Entry


class ForgetsToDivideOnePath(AveragedMainGrads):
    """One of two paths through the code sums and does not divide."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        is_other_path = bucket is self.buckets[-1]
        return 1 if is_other_path else super().divisor(bucket)


ENTRY = Entry(
    subject=ForgetsToDivideOnePath,
    twin=AveragedMainGrads,
    source="pytorch/torchtitan#2972",
    trigger="2 ranks",
    silent=True,
    property="gradient_equals_reference",
    cause="scaled",
)
