"""Gradients still lie in the old buffers when these are given up.

Reported in pytorch/pytorch#41954.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#41954",
    trigger="2 parameters in one bucket",
    violates="unbind_restores_parameters",
    cause="buffer_left",
    uses_streams=True,
)
class LeavesBuffersBehind(SideStreams):
    """Gradients still lie in the old buffers when these are given up."""

    @override
    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.buckets, self.hooks = [], []
