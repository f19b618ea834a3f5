"""The event of completion is recorded on the stream of the first of two legs.

Reported in pytorch/pytorch#160481.
"""

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class ReducesLegsOnTwoStreams(SideStreams):
    """Right: the second axis is reduced on a second stream."""

    @override
    def bind(self) -> None:
        self.outer = torch.cuda.Stream()
        self.finished: list[torch.cuda.Event] = []
        super().bind()

    @override
    def launch(self, bucket: Bucket) -> None:
        self.fork()
        for group, stream in zip(bucket.groups, (self.comm, self.outer), strict=False):
            with torch.cuda.stream(stream):
                dist.all_reduce(bucket.buffer, group=group)
            self.outer.wait_stream(self.comm)
        self.finished.append(self.last_leg().record_event())

    def last_leg(self) -> torch.cuda.Stream:
        """Return the stream on which the last reduction runs."""
        return self.outer

    @override
    def join(self) -> None:
        while self.finished:
            self.finished.pop().wait()


@reported(
    "pytorch/pytorch#160481",
    trigger="a mesh of (2, 2), each axis with a stream of its own",
    violates="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
    uses_streams=True,
)
class RecordsFirstLeg(ReducesLegsOnTwoStreams):
    """The event of completion is recorded on the stream of the first of two legs."""

    @override
    def last_leg(self) -> torch.cuda.Stream:
        return self.comm
