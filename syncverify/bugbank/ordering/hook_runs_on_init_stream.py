"""The reduction waits for the default stream, and accumulation is on another one.

Reported in NVIDIA/Megatron-LM#3670.
"""

import torch
from torch.autograd.graph import get_gradient_edge
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


class AccumulatesOnOwnStream(SideStreams):
    """Right: accumulation runs on a stream that `bind()` makes."""

    @override
    def bind(self) -> None:
        super().bind()
        with torch.cuda.stream(torch.cuda.Stream()):
            managed = (p for bucket in self.buckets for p in bucket.parameters)
            self.accumulators = [get_gradient_edge(p).node for p in managed]

    @override
    def unbind(self) -> None:
        super().unbind()
        del self.accumulators


@reported(
    "NVIDIA/Megatron-LM#3670",
    trigger="2 ranks, gradient accumulators made on another stream",
    violates="reduce_reads_after_accumulation",
    cause="reduced_before_accumulated",
    uses_streams=True,
)
class ForksFromDefaultStream(AccumulatesOnOwnStream):
    """The reduction waits for the default stream, and accumulation is on another one."""

    @override
    def fork(self) -> None:
        self.comm.wait_stream(torch.cuda.default_stream())
