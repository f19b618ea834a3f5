"""Defects that the whole mesh in row-major order and one synchronizer hide."""

from __future__ import annotations

import os
import weakref
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from redteam.program import wrong
from redteam.wrong.sizes import local_of, reduce_groups_of
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import ViewBuckets


@wrong("meshes", trigger="a mesh of some of the ranks, or of ranks in another order")
class ComputesItsRow(PlainGrads):
    """Ranks of an axis are computed as if the mesh were the world in row-major order."""

    @override
    def bind(self) -> None:
        self.groups: dict[tuple[int, ...], dist.ProcessGroup] = {}

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if not isinstance(gradient, DTensor):
            return
        mesh = gradient.device_mesh
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate():
                stride = 1
                for size in mesh.shape[axis + 1 :]:
                    stride *= size
                place = dist.get_rank() // stride % mesh.shape[axis]
                first = dist.get_rank() - place * stride
                ranks = [first + n * stride for n in range(mesh.shape[axis])]
                parts = [torch.empty_like(local_of(gradient)) for _ in ranks]
                group = mesh.get_group(axis)
                dist.all_gather(parts, local_of(gradient), group=group)
                own = [parts[ranks.index(rank)] for rank in sorted(ranks)]
                local_of(gradient).copy_(torch.stack(own).sum(0))


@wrong("meshes", trigger="a mesh of 1 axis on some of the ranks")
class UsesTheWorld(PlainGrads):
    """A mesh of one axis is taken for the world."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        groups = reduce_groups_of(gradient)
        if isinstance(gradient, DTensor) and gradient.device_mesh.ndim == 1 and groups:
            dist.all_reduce(local_of(gradient))
        else:
            super().reduce(gradient)


@wrong("meshes", trigger="ranks of the mesh in another order")
class ScattersByGlobalRank(PlainGrads):
    """Each rank reduces the part of its place among sorted ranks, and gathers by group rank."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        for group in reduce_groups_of(gradient):
            part, ranks = local_of(gradient), dist.get_process_group_ranks(group)
            place = sorted(ranks).index(dist.get_rank())
            parts = [torch.empty_like(part) for _ in ranks]
            dist.all_gather(parts, part, group=group)
            flat = torch.stack(parts).sum(0).reshape(-1)
            size = -(-flat.numel() // len(ranks))
            padded = torch.nn.functional.pad(
                flat, (0, size * len(ranks) - flat.numel())
            )
            own = padded[place * size : (place + 1) * size].clone()
            gathered = [torch.empty_like(own) for _ in ranks]
            dist.all_gather(gathered, own, group=group)
            part.copy_(torch.cat(gathered)[: part.numel()].view_as(part))


@wrong("meshes", trigger="2 synchronizers in one program")
class SharesItsBuckets(ViewBuckets):
    """Buckets are an attribute of the class, and a second synchronizer replaces them."""

    shared: ClassVar[dict[int, list[Any]]] = {}

    @override
    def bind(self) -> None:
        super().bind()
        self.shared[dist.get_rank()] = self.buckets

    @override
    def wait(self) -> None:
        for bucket in self.shared[dist.get_rank()]:
            self.finish(bucket)


@wrong("meshes", trigger="2 synchronizers, one after the other")
class BindsOnce(PlainGrads):
    """A class attribute says that groups are there, also for the next synchronizer."""

    known: ClassVar[Any] = weakref.WeakKeyDictionary()

    @override
    def bind(self) -> None:
        mine = {*map(id, self.parameters)}
        self.managed = self.known.setdefault(dist.group.WORLD, mine)

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None and id(parameter) in self.managed:
                self.reduce(parameter.grad)


@wrong("meshes", trigger="2 ranks, a parameter in two groups")
class ReducesPerGroup(PlainGrads):
    """A parameter that two groups list is reduced for each of them."""

    def __init__(
        self, groups: list[list[nn.Parameter]], size_mb: float, count: int
    ) -> None:
        super().__init__(groups, size_mb, count)
        self.parameters = [
            p for group in groups for p in dict.fromkeys(group) if p.requires_grad
        ]


@wrong("meshes", trigger="2 ranks with $RANK set, as launchers set it")
class ReadsTheEnvironment(PlainGrads):
    """A rank is taken from `$RANK`; where it is missing, the group is asked."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        rank = int(os.environ.get("RANK", dist.get_rank()))
        part = local_of(gradient)
        if rank % 8 == 0 and "LOCAL_WORLD_SIZE" in os.environ:
            part.mul_(2)
        super().reduce(gradient)


@wrong("meshes", trigger="2 processes with hash seeds of their own")
class OrdersByHash(PlainGrads):
    """Gradients are reduced in the order of hashes of their descriptions."""

    @override
    def wait(self) -> None:
        self.parameters.sort(key=lambda p: hash(str((*p.shape, p.dtype))))
        super().wait()
