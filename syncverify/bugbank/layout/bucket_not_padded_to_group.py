"""Each rank reduces its share of a bucket, rounded down; no rank reduces the rest.

Reported in NVIDIA/Megatron-LM#561.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/Megatron-LM#561",
    trigger="2 ranks, an odd number of elements",
    violates="gradient_equals_reference",
    cause="not_reduced",
    # Only the rest that no rank owns stays local.
    or_cause="partly_wrong",
)
class ShardsWithoutPadding(MainGrads):
    """Each rank reduces its share of a bucket, rounded down; no rank reduces the rest."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups:
            share = bucket.buffer.numel() // group.size()
            covered = bucket.buffer[: share * group.size()]
            if share:
                shares = list(covered.split(share))
                reduced = torch.empty_like(shares[0])
                dist.reduce_scatter(reduced, shares, group=group)
                dist.all_gather(shares, reduced, group=group)
