"""Reductions were to overlap, and are all exposed after backward.

Reported in pytorch/torchtitan#3821.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/torchtitan#3821",
    trigger="2 ranks, 2 buckets",
    violates="overlap_is_possible",
    cause="never_overlapped",
    uses_streams=True,
)
class LaunchesInWait(SideStreams):
    """Reductions were to overlap, and are all exposed after backward."""

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    @override
    def wait(self) -> None:
        for bucket in self.buckets:
            self.launch(bucket)
        super().wait()
