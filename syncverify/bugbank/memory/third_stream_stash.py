"""Reported in pytorch/pytorch#188655."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.held_copies import HoldsCopies
from syncverify.bugbank.entry import Entry


class ReleasesBeforeJoin(HoldsCopies):
    """A handle protects its tensor until a third stream waited, not the allocating one."""

    @override
    def wait(self) -> None:
        self.copy_back()
        self.held.clear()
        self.join()


ENTRY = Entry(
    subject=ReleasesBeforeJoin,
    twin=HoldsCopies,
    source="pytorch/pytorch#188655",
    trigger="2 ranks, a copy that is dropped before the join",
    silent=True,
    property="memory_outlives_its_streams",
    cause="freed_in_use",
    uses_streams=True,
)
