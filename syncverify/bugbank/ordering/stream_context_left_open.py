"""A stream context outlives the call that enters it, and ends in the next one.

Reported in pytorch/pytorch#17439.
"""

import torch
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#17439",
    trigger="any program",
    violates="stream_context_is_restored",
    cause="stream_changed",
    uses_streams=True,
)
class LeavesContextOpen(SideStreams):
    """A stream context outlives the call that enters it, and ends in the next one."""

    @override
    def wait(self) -> None:
        super().wait()
        self.context = torch.cuda.stream(self.comm)
        self.context.__enter__()

    @override
    def zero_grad(self) -> None:
        self.context.__exit__(None, None, None)
        self.join()
        super().zero_grad()
