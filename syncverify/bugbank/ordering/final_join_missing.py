"""The main stream does not wait for the side stream at the end.

Reported in pytorch/pytorch#144535.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#144535",
    trigger="2 ranks, a side stream",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
    uses_streams=True,
)
class NeverJoins(SideStreams):
    """The main stream does not wait for the side stream at the end."""

    @override
    def join(self) -> None:
        pass
