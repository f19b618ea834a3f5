"""Reported in NVIDIA/Megatron-LM#6660."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import Entry


class AddsResultToItself(MainGrads):
    """A group of one rank returns its input, which is added to the sum it already is."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if not bucket.groups:
            reduced = bucket.buffer  # nothing to exchange
            bucket.buffer.add_(reduced)


ENTRY = Entry(
    subject=AddsResultToItself,
    twin=MainGrads,
    source="NVIDIA/Megatron-LM#6660",
    trigger="1 rank",
    silent=True,
    property="unreduced_stay_local",
    cause="scaled",
)
