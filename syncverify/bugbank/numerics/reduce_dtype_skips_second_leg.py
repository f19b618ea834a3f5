"""The first of two reductions sums in bfloat16, the second in full precision.

Reported in pytorch/pytorch#190627.
"""

import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#190627",
    trigger="a mesh of (2, 2), sums that bfloat16 cannot hold",
    violates="gradient_equals_reference",
    cause="rounded",
)
class ReducesFirstAxisInBfloat16(MainGrads):
    """The first of two reductions sums in bfloat16, the second in full precision."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        for index, group in enumerate(bucket.groups):
            narrow = index == 0 and len(bucket.groups) > 1
            sent = bucket.buffer.bfloat16() if narrow else bucket.buffer
            dist.all_reduce(sent, group=group)
            bucket.buffer.copy_(sent)
