"""Reported in NVIDIA/Megatron-LM#2218."""

from __future__ import annotations

import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.entry import Entry


class ReducesInRankOrder(MainGrads):
    """Buckets are reduced in the order of a set, which differs between ranks."""

    @override
    def wait(self) -> None:
        if dist.get_rank() % 2:  # what hashes of addresses do, made repeatable
            self.buckets.reverse()
        super().wait()


ENTRY = Entry(
    subject=ReducesInRankOrder,
    twin=MainGrads,
    source="NVIDIA/Megatron-LM#2218",
    trigger="2 ranks, 2 buckets",
    silent=False,
    property="collectives_match_across_ranks",
    cause="collective_mismatch",
)
