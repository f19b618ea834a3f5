"""Reductions are turned on between phases, and a stage with one phase has none.

Reported in huggingface/picotron#5.
"""

from typing_extensions import override

from syncverify.bugbank.bases.flags import FlagsMicroBatches
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "huggingface/picotron#5",
    trigger="2 ranks, 1 micro-batch",
    violates="gradient_equals_reference",
    cause="not_reduced",
)
class SyncsInCooldown(FlagsMicroBatches):
    """Reductions are turned on between phases, and a stage with one phase has none."""

    @override
    def may_reduce(self, bucket: Bucket) -> bool:
        return self.required > 1 and super().may_reduce(bucket)
