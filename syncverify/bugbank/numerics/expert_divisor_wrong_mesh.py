"""The mean divides by all ranks, also where few of them hold the same shard.

Reported in NVIDIA/Megatron-LM#5956.
"""

import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/Megatron-LM#5956",
    trigger="4 ranks in a mesh of (2, 2), a parameter that is cut over one axis",
    violates="gradient_equals_reference",
    cause="scaled",
)
class DividesByWorldSize(AveragedMainGrads):
    """The mean divides by all ranks, also where few of them hold the same shard."""

    @override
    def divisor(self, bucket: Bucket) -> int:
        return dist.get_world_size() if bucket.groups else 1
