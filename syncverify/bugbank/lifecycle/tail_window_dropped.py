"""Reported in horovod/horovod#546."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.contracts import only
from syncverify.bugbank.entry import Entry


class LeavesTail(Careful):
    """A window that ends early never becomes complete, and nobody launches the rest."""

    outside = only("event=tail")

    @override
    def launch_rest(self) -> None:
        pass


ENTRY = Entry(
    subject=LeavesTail,
    twin=Careful,
    source="horovod/horovod#546",
    trigger="2 ranks, a window that ends early",
    silent=True,
    property="gradient_equals_reference",
    cause="not_reduced",
    uses_streams=True,
)
