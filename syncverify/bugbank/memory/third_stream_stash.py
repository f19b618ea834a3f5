"""A handle protects its tensor until a third stream waited, not the allocating one.

Reported in pytorch/pytorch#188655.
"""

from typing_extensions import override

from syncverify.bugbank.bases.held_copies import HoldsCopies
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#188655",
    trigger="2 ranks, a copy that is dropped before the join",
    violates="memory_outlives_its_streams",
    cause="freed_in_use",
    uses_streams=True,
)
class ReleasesBeforeJoin(HoldsCopies):
    """A handle protects its tensor until a third stream waited, not the allocating one."""

    @override
    def wait(self) -> None:
        self.copy_back()
        self.held.clear()
        self.join()
