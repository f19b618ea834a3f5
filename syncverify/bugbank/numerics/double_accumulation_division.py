"""Reported in huggingface/transformers#40052."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import Entry


class DividesByMicroBatches(AveragedMainGrads):
    """The loss is divided by the number of micro-batches, and backward divides again."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        return super().divisor(bucket) * self.required


ENTRY = Entry(
    subject=DividesByMicroBatches,
    twin=AveragedMainGrads,
    source="huggingface/transformers#40052",
    trigger="2 micro-batches",
    silent=True,
    property="unreduced_stay_local",
    cause="scaled",
)
