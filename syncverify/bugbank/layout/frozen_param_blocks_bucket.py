"""Reported in pytorch/pytorch#14675."""

from __future__ import annotations

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import Entry


class CountsFrozenParameters(ViewBuckets):
    """A frozen parameter has a place in a bucket, which never becomes complete."""

    @override
    def is_managed(self, parameter: nn.Parameter) -> bool:
        return True


ENTRY = Entry(
    subject=CountsFrozenParameters,
    twin=ViewBuckets,
    source="pytorch/pytorch#14675",
    trigger="2 ranks, a frozen parameter beside another one",
    silent=True,
    property="gradient_equals_reference",
    cause="not_reduced",
)
