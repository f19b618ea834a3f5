"""The factor of a bfloat16 mean is stored in 4 bytes, of which 2 are read.

Reported in pytorch/pytorch#190745.
"""

import torch
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#190745",
    trigger="2 ranks, a bfloat16 gradient",
    violates="gradient_equals_reference",
    cause="scaled",
    # The half that is read may be 0.
    or_cause="erased",
)
class ReadsHalfOfFactor(AveragedMainGrads):
    """The factor of a bfloat16 mean is stored in 4 bytes, of which 2 are read."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        if bucket.groups and bucket.buffer.dtype is torch.bfloat16:
            stored = torch.tensor([1 / self.divisor(bucket)])
            read, _ = stored.view(torch.bfloat16)
            bucket.buffer.mul_(read)
