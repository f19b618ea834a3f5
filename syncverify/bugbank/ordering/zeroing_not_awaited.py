"""The next backward does not wait until gradients are cleared.

Reported in deepspeedai/DeepSpeed#856.
"""

import torch
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


class ZeroesAside(SideStreams):
    """Right: buckets are cleared off the critical path."""

    @override
    def zero_grad(self) -> None:
        self.fork()
        with torch.cuda.stream(self.comm):
            super().zero_grad()
        self.finish_zeroing()

    def finish_zeroing(self) -> None:
        """Wait until gradients are cleared."""
        self.join()


@reported(
    "deepspeedai/DeepSpeed#856",
    trigger="2 ranks, 2 steps",
    violates="zero_grad_waits_for_reduce",
    cause="used_before_zeroed",
    uses_streams=True,
)
class NeverFinishesZeroing(ZeroesAside):
    """The next backward does not wait until gradients are cleared."""

    @override
    def finish_zeroing(self) -> None:
        pass

    @override
    def unbind(self) -> None:
        self.join()
        super().unbind()
