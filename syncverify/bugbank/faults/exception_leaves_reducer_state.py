"""Counts survive a backward that failed.

Reported in pytorch/pytorch#114194.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#114194",
    trigger="2 ranks, a backward that fails",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    uses_streams=True,
)
class KeepsCountsOfFailedStep(Careful):
    """Counts survive a backward that failed."""

    features = frozenset({"event=raise_in_backward"})

    @override
    def check_count(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[p] >= self.required for p in bucket.parameters)

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            bucket.counts.clear()

    @override
    def zero_grad(self) -> None:
        self.finish_thrown_away()
        self.num_launched = 0
        self.is_reduced = False
        for bucket in self.buckets:
            bucket.buffer.zero_()

    @override
    def finish_thrown_away(self) -> None:
        if self.num_launched and not self.is_reduced:
            self.launch_rest()
            super(Careful, self).wait()
