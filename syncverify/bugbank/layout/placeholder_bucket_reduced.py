"""A parameter beyond the cap flushes the bucket before it, if there is one or not.

Reported in deepspeedai/DeepSpeed#1214.
"""

from collections.abc import Iterator

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.placements import local_bytes
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "deepspeedai/DeepSpeed#1214",
    trigger="a first parameter beyond the cap",
    violates="every_rank_finishes",
    cause="raised_IndexError",
    silent=False,
)
class FlushesWhatIsNotThere(ViewBuckets):
    """A parameter beyond the cap flushes the bucket before it, if there is one or not."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        for members in super().plan():
            if local_bytes(members[0]) > self.cap_bytes:
                yield []
            yield members
