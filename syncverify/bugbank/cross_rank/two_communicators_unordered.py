"""A check for overflow uses a second communicator, at no fixed place in the order.

Reported in NVIDIA/nccl#195.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "NVIDIA/nccl#195",
    trigger="2 ranks, a check on a communicator of its own",
    violates="launch_order_agrees",
    cause="deadlock_hazard",
    silent=False,
)
class ChecksInTurn(ViewBuckets):
    """A check for overflow uses a second communicator, at no fixed place in the order."""

    @override
    def bind(self) -> None:
        self.group = dist.new_group()
        self.checks: list[dist.Work] = []
        super().bind()

    @override
    def launch(self, bucket: Bucket) -> None:
        if dist.get_rank() % 2:  # the effect of separate threads, made repeatable
            super().launch(bucket)
            self.check()
        else:
            self.check()
            super().launch(bucket)

    def check(self) -> None:
        """Start to look for an overflow."""
        largest = torch.zeros(1)
        self.checks.append(
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group, async_op=True)
        )

    @override
    def wait(self) -> None:
        while self.checks:
            self.checks.pop().wait()
        super().wait()
