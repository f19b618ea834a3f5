"""The copy back follows a future that is done when the reduction is only queued.

Reported in NERSC/sc24-dl-tutorial#1.
"""

import torch
from typing_extensions import override

from syncverify.bugbank.bases.held_copies import HoldsCopies
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "NERSC/sc24-dl-tutorial#1",
    trigger="2 ranks",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
    uses_streams=True,
)
class CopiesBackOnEnqueue(HoldsCopies):
    """The copy back follows a future that is done when the reduction is only queued."""

    @override
    def launch(self, bucket: Bucket) -> None:
        super().launch(bucket)
        if self.held:
            with torch.cuda.stream(self.comm):
                bucket.buffer.copy_(self.held[-1][1])

    @override
    def copy_back(self) -> None:
        with torch.cuda.stream(self.comm):
            for _, _, work in self.held:
                work.wait()
