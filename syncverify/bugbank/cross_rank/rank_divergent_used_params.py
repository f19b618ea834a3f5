"""Only parameters that this rank's data used are reduced.

Reported in pytorch/pytorch#158719.
"""

import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait, is_odd
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class ReducesEachParameter(ReducesInWait):
    """Right: reduces gradient by gradient, in place."""

    @override
    def launch(self, bucket: Bucket) -> None:
        for parameter in self.used(bucket):
            for group in bucket.groups:
                dist.all_reduce(local_grad(parameter), group=group)

    def used(self, bucket: Bucket) -> list[nn.Parameter]:
        """List the parameters to reduce."""
        return bucket.parameters


@reported(
    "pytorch/pytorch#158719",
    trigger="2 ranks that use one parameter each",
    violates="every_wait_completes",
    cause="deadlock",
    # The next collective of the other rank may come in its place.
    or_cause="collective_mismatch",
    silent=False,
)
class ReducesUsedParameters(ReducesEachParameter):
    """Only parameters that this rank's data used are reduced."""

    @override
    def order(self) -> list[Bucket]:
        unused = 0 if is_odd() else 1
        return [*self.buckets[:unused], *self.buckets[unused + 1 :]]
