"""The main stream waits when the next call begins, with work queued in between.

Reported in pytorch/pytorch#181218.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#181218",
    trigger="2 ranks, a side stream",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
    uses_streams=True,
)
class JoinsAtNextEntry(SideStreams):
    """The main stream waits when the next call begins, with work queued in between."""

    @override
    def join(self) -> None:
        pass

    @override
    def zero_grad(self) -> None:
        super().join()
        super().zero_grad()
