"""Buckets whose sizes differ from what the cap promises."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from typing_extensions import override

from studies.redteam.program import wrong
from syncverify.bugbank.bases.view_buckets import ViewBuckets


@wrong(trigger="2 parameters of one kind, a cap between them", keeps_bucket_cap=True)
class IgnoresTheCap(ViewBuckets):
    """All parameters of a kind share one bucket, whatever the cap says."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        self.cap_bytes = float("inf")
        yield from super().plan()


@wrong(trigger="2 parameters, a cap that splits", keeps_bucket_cap=True)
class CapsInElements(ViewBuckets):
    """The cap in bytes is compared with a number of elements of four bytes."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        self.cap_bytes *= 4
        yield from super().plan()


@wrong(trigger="2 ranks, sharded parameters, a cap that splits", keeps_bucket_cap=True)
class CapsGlobalBytes(ViewBuckets):
    """The cap is multiplied by the number of ranks, as if it counted global bytes."""

    @override
    def plan(self) -> Iterator[list[nn.Parameter]]:
        groups = [p for group in self.param_groups for p in group]
        meshes = [getattr(parameter, "device_mesh", None) for parameter in groups]
        self.cap_bytes *= max([mesh.size() for mesh in meshes if mesh] or [1])
        yield from super().plan()
