"""The answer is copied before the reduction that gives it is waited for.

Reported in pytorch/pytorch#115710.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


class AgreesOnOverflow(SideStreams):
    """Right: asks all ranks whether a gradient is infinite, and keeps the answer."""

    @override
    def bind(self) -> None:
        super().bind()
        self.found, self.everywhere = torch.zeros(1), torch.zeros(1)

    @override
    def wait(self) -> None:
        super().wait()
        work = dist.all_reduce(self.found, dist.ReduceOp.MAX, async_op=True)
        self.keep_answer(work)

    def keep_answer(self, work: dist.Work) -> None:
        """Keep the flags of all ranks together."""
        work.wait()
        self.everywhere.copy_(self.found)


@reported(
    "pytorch/pytorch#115710",
    trigger="2 ranks, a reduced flag",
    violates="bucket_is_exclusive_while_reducing",
    cause="touched_in_flight",
    uses_streams=True,
)
class KeepsAnswerTooEarly(AgreesOnOverflow):
    """The answer is copied before the reduction that gives it is waited for."""

    @override
    def keep_answer(self, work: dist.Work) -> None:
        self.everywhere.copy_(self.found)
        work.wait()
