"""Both ranks send before they receive, and messages of a pair run one by one.

Reported in NVIDIA/nccl#479.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.entry import reported


class TellsNeighbour(ReducesInWait):
    """Right: ranks of a pair send each other a number, in one batch."""

    @override
    def wait(self) -> None:
        for group in self.buckets[0].groups[:1]:
            peer = group.rank() ^ 1
            if peer < group.size():
                self.exchange(peer, group)
        super().wait()

    def exchange(self, peer: int, group: dist.ProcessGroup) -> None:
        """Send to a rank, and receive from it."""
        messages = [
            dist.P2POp(dist.isend, torch.ones(1), group=group, group_peer=peer),
            dist.P2POp(dist.irecv, torch.empty(1), group=group, group_peer=peer),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()


@reported(
    "NVIDIA/nccl#479",
    trigger="2 ranks that send before they receive",
    violates="launch_order_agrees",
    cause="opposing_messages",
    silent=False,
)
class TellsNeighbourOneByOne(TellsNeighbour):
    """Both ranks send before they receive, and messages of a pair run one by one."""

    @override
    def exchange(self, peer: int, group: dist.ProcessGroup) -> None:
        works = [
            dist.isend(torch.ones(1), group=group, group_dst=peer),
            dist.irecv(torch.empty(1), group=group, group_src=peer),
        ]
        for work in works:
            if work is not None:
                work.wait()
