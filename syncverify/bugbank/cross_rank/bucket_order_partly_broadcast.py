"""The order of parameters was agreed upon, sizes of buckets were not.

Reported in pytorch/pytorch#35137.
"""

from collections.abc import Iterator

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.in_wait import is_odd
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#35137",
    trigger="2 ranks, 2 parameters that one rank puts into one bucket",
    violates="collectives_match_across_ranks",
    cause="buckets_differ",
    silent=False,
)
class CutsAtItsOwnCap(ViewBuckets):
    """The order of parameters was agreed upon, sizes of buckets were not."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        for members in super().plan():
            if is_odd():
                yield from ([member] for member in members)
            else:
                yield members
