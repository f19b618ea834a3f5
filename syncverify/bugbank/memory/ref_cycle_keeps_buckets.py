"""Reported in pytorch/pytorch#63211."""

from __future__ import annotations

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import Entry


class KeepsHooks(ViewBuckets):
    """unbind() forgets its hooks without removing them."""

    @override
    def unbind(self) -> None:
        self.hooks.clear()
        super().unbind()


ENTRY = Entry(
    subject=KeepsHooks,
    twin=ViewBuckets,
    source="pytorch/pytorch#63211",
    trigger="any program",
    silent=True,
    property="unbind_restores_parameters",
    cause="hook_left",
)
