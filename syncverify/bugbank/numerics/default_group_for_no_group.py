"""Where no axis is replicated the group is None, and None means all ranks.

Reported in verl-project/verl#7494.
"""

import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "verl-project/verl#7494",
    trigger="2 ranks, a parameter that is cut over all of them",
    violates="collectives_match_across_ranks",
    cause="foreign_contribution",
)
class ReducesOverDefaultGroup(MainGrads):
    """Where no axis is replicated the group is None, and None means all ranks."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        for group in bucket.groups or (None,):
            dist.all_reduce(bucket.buffer, group=group)
