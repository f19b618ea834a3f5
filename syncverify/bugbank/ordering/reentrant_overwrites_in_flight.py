"""A bucket is launched when its first gradient is complete, while others are added.

Reported in facebookresearch/fairscale#780.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "facebookresearch/fairscale#780",
    trigger="2 ranks, 2 gradients that come to one bucket",
    violates="gradient_equals_reference",
    cause="reduced_early",
    # With a second reduction in `wait()`, that one may read before autograd adds.
    or_cause="reduced_before_accumulated",
    uses_streams=True,
)
class LaunchesOnFirstGradient(SideStreams):
    """A bucket is launched when its first gradient is complete, while others are added."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        complete = [bucket.counts[p] == self.required for p in bucket.parameters]
        return complete.count(True) == 1
