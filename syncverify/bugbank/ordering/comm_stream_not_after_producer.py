"""The reduction does not wait for the stream that fills the bucket.

Reported in hpcaitech/ColossalAI#4404.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import reported


@reported(
    "hpcaitech/ColossalAI#4404",
    trigger="2 ranks, a side stream",
    violates="reduce_reads_after_accumulation",
    cause="reduced_before_accumulated",
    uses_streams=True,
)
class NeverForks(SideStreams):
    """The reduction does not wait for the stream that fills the bucket."""

    @override
    def fork(self) -> None:
        pass
