"""A group of one rank returns its input, which is added to the sum it already is.

Reported in NVIDIA/Megatron-LM#6660.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/Megatron-LM#6660",
    trigger="1 rank",
    violates="unreduced_stay_local",
    cause="scaled",
)
class AddsResultToItself(MainGrads):
    """A group of one rank returns its input, which is added to the sum it already is."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if not bucket.groups:
            reduced = bucket.buffer  # nothing to exchange
            bucket.buffer.add_(reduced)
