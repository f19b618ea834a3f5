"""Reported in pytorch/pytorch#144535."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.entry import Entry


class NeverJoins(SideStreams):
    """Nobody calls what makes the main stream wait at the end."""

    @override
    def join(self) -> None:
        pass


ENTRY = Entry(
    subject=NeverJoins,
    twin=SideStreams,
    source="pytorch/pytorch#144535",
    trigger="2 ranks, a side stream",
    silent=True,
    property="wait_orders_reads_after_reduce",
    cause="read_before_reduced",
    uses_streams=True,
)
