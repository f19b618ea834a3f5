"""A mean over one rank is written without its last 8 elements.

Reported in NVIDIA/nccl#1950.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/nccl#1950",
    trigger="1 rank",
    violates="unreduced_stay_local",
    cause="never_written",
)
class LosesTailOfOneRank(AveragedMainGrads):
    """A mean over one rank is written without its last 8 elements."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if not bucket.groups:
            bucket.buffer[-8:] = 0
