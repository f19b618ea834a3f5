"""A hook's reduction on one rank meets another collective on the other.

Reported in pytorch/pytorch#72843.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait, is_odd
from syncverify.bugbank.entry import reported


class CountsFirst(ReducesInWait):
    """Right: all ranks exchange counts, and then reduce."""

    @override
    def wait(self) -> None:
        self.exchange_counts()
        super().wait()

    def exchange_counts(self) -> None:
        """Send a number from each rank to all others."""
        for group in self.buckets[0].groups[:1]:
            counts = torch.zeros(group.size(), dtype=torch.int64)
            dist.all_to_all_single(counts, torch.ones_like(counts), group=group)


@reported(
    "pytorch/pytorch#72843",
    trigger="2 ranks, an all_to_all before the reduction or after it",
    violates="collectives_match_across_ranks",
    cause="collective_mismatch",
    silent=False,
)
class CountsAfterwardsAsWell(CountsFirst):
    """A hook's reduction on one rank meets another collective on the other."""

    @override
    def wait(self) -> None:
        if is_odd():
            ReducesInWait.wait(self)
            self.exchange_counts()
        else:
            super().wait()
