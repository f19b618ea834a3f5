"""The reduction waits only for the stream that filled the bucket last.

Reported in deepspeedai/DeepSpeed#8061.
"""

from itertools import cycle

import torch
from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.entry import reported


class PacksOnTwoStreams(MainGrads):
    """Right: gradients are copied into their bucket on two streams, in turns."""

    @override
    def bind(self) -> None:
        super().bind()
        self.comm = torch.cuda.Stream()
        self.packers = [torch.cuda.Stream(), torch.cuda.Stream()]
        self.packer_of = dict(zip(self.moved, cycle(self.packers), strict=False))

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        packer = self.packer_of[parameter]
        packer.wait_stream(torch.cuda.current_stream())
        local_grad(parameter).record_stream(packer)
        with torch.cuda.stream(packer):
            super().on_accumulated(slot, parameter)

    @override
    def wait(self) -> None:
        for packer in self.awaited():
            self.comm.wait_stream(packer)
        with torch.cuda.stream(self.comm):
            super().wait()
        torch.cuda.current_stream().wait_stream(self.comm)

    def awaited(self) -> list[torch.cuda.Stream]:
        """List the streams that fill buckets."""
        return self.packers


@reported(
    "deepspeedai/DeepSpeed#8061",
    trigger="2 ranks, 2 parameters in one bucket, packed on 2 streams",
    violates="reduce_reads_after_accumulation",
    cause="reduced_before_accumulated",
    # On one rank nothing is reduced, and the optimizer reads next.
    or_cause="read_before_reduced",
    uses_streams=True,
)
class WaitsForLastPacker(PacksOnTwoStreams):
    """The reduction waits only for the stream that filled the bucket last."""

    @override
    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        super().on_accumulated(slot, parameter)
        self.last = self.packer_of[parameter]

    @override
    def awaited(self) -> list[torch.cuda.Stream]:
        return [self.last]
