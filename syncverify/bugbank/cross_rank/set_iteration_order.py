"""Buckets are reduced in the order of a set, which differs between ranks.

Reported in NVIDIA/Megatron-LM#2218.
"""

import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/Megatron-LM#2218",
    trigger="2 ranks, 2 buckets",
    violates="collectives_match_across_ranks",
    cause="collective_mismatch",
    silent=False,
)
class ReducesInRankOrder(MainGrads):
    """Buckets are reduced in the order of a set, which differs between ranks."""

    @override
    def wait(self) -> None:
        if dist.get_rank() % 2:  # the effect of hashes of addresses, made repeatable
            self.buckets.reverse()
        super().wait()
