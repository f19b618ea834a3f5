"""Reported in horovod/horovod#1116."""

from __future__ import annotations

import torch
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import Entry


class MeasuresNorm(SideStreams):
    """Right: what was reduced is looked at on a third stream before it is cleared."""

    @override
    def bind(self) -> None:
        self.telemetry = torch.cuda.Stream()
        super().bind()

    @override
    def wait(self) -> None:
        super().wait()
        self.telemetry.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.telemetry):
            for bucket in self.buckets:
                bucket.buffer.square().sum()

    @override
    def zero_grad(self) -> None:
        self.finish_telemetry()
        super().zero_grad()

    def finish_telemetry(self) -> None:
        """Wait until nobody reads gradients."""
        torch.cuda.current_stream().wait_stream(self.telemetry)


class ZeroesWhatIsRead(MeasuresNorm):
    """Gradients may be cleared while something in flight reads them."""

    @override
    def finish_telemetry(self) -> None:
        pass


ENTRY = Entry(
    subject=ZeroesWhatIsRead,
    twin=MeasuresNorm,
    source="horovod/horovod#1116",
    trigger="2 ranks, gradients read on a third stream",
    silent=True,
    property="zero_grad_waits_for_reduce",
    cause="zeroed_in_flight",
    uses_streams=True,
)
