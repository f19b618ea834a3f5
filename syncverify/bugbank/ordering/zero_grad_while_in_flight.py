"""Gradients may be cleared while something in flight reads them.

Reported in horovod/horovod#1116.
"""

import torch
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


class MeasuresNorm(SideStreams):
    """Right: a third stream reads reduced gradients before they are cleared."""

    @override
    def bind(self) -> None:
        self.telemetry = torch.cuda.Stream()
        super().bind()

    @override
    def zero_grad(self) -> None:
        self.telemetry.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.telemetry):
            for bucket in self.buckets:
                bucket.buffer.square().sum()
        self.finish_telemetry()
        super().zero_grad()

    def finish_telemetry(self) -> None:
        """Wait until no stream reads gradients."""
        torch.cuda.current_stream().wait_stream(self.telemetry)


@reported(
    "horovod/horovod#1116",
    trigger="2 ranks, gradients read on a third stream",
    violates="zero_grad_waits_for_reduce",
    cause="zeroed_in_flight",
    uses_streams=True,
)
class ZeroesWhatIsRead(MeasuresNorm):
    """Gradients may be cleared while something in flight reads them."""

    @override
    def finish_telemetry(self) -> None:
        pass
