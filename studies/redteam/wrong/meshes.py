"""Defects that the whole mesh in row-major order, its groups and one synchronizer hide."""

import itertools
import math
import os
import weakref
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.bases import OwnGroups, gathered, local_of, reduce_groups_of
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets


@wrong(trigger="2 axes, with ranks in another order", needs=("mesh=permuted",))
class ComputesItsRow(PlainGrads):
    """Ranks of an axis are computed as if the mesh were the world in row-major order."""

    @override
    def bind(self) -> None:
        self.groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        meshes = {p.device_mesh for p in self.parameters if isinstance(p, DTensor)}
        shapes = sorted({tuple(mesh.shape) for mesh in meshes})
        for shape in [s for s in shapes if math.prod(s) == dist.get_world_size()]:
            world = torch.arange(dist.get_world_size()).reshape(shape)
            for axis, size in enumerate(shape):
                for row in world.movedim(axis, -1).reshape(-1, size).tolist():
                    group = dist.new_group(row)
                    if dist.get_rank() in row:
                        self.groups[(*shape, axis)] = group

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if not isinstance(gradient, DTensor):
            return
        mesh = gradient.device_mesh
        for axis, placement in enumerate(gradient.placements):
            if placement.is_replicate():
                known = self.groups.get((*mesh.shape, axis), mesh.get_group(axis))
                dist.all_reduce(local_of(gradient), group=known)


@wrong(trigger="a mesh of 1 axis on some of the ranks", needs=("placement=sub_mesh",))
class UsesTheWorld(PlainGrads):
    """A mesh of one axis is taken for the world."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        groups = reduce_groups_of(gradient)
        if isinstance(gradient, DTensor) and gradient.device_mesh.ndim == 1 and groups:
            dist.all_reduce(local_of(gradient))
        else:
            super().reduce(gradient)


@wrong(trigger="ranks of the mesh in another order", needs=("mesh=permuted",))
class ScattersByCoordinate(PlainGrads):
    """Each rank sums the part of its coordinate, and parts are gathered by group rank."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if not isinstance(gradient, DTensor):
            return
        mesh = gradient.device_mesh
        for axis, placement in enumerate(gradient.placements):
            if not placement.is_replicate():
                continue
            group, place = mesh.get_group(axis), (mesh.get_coordinate() or [])[axis]
            part, ranks = local_of(gradient), dist.get_process_group_ranks(group)
            flat = torch.stack(gathered(part, group)).sum(0).reshape(-1)
            size = -(-flat.numel() // len(ranks))
            padded = torch.nn.functional.pad(
                flat, (0, size * len(ranks) - flat.numel())
            )
            own = padded[place * size : (place + 1) * size].clone()
            whole = torch.cat(gathered(own, group))
            part.copy_(whole[: part.numel()].view_as(part))


@wrong(trigger="2 synchronizers in one program", needs=("synchronizers=two",))
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


@wrong(
    trigger="2 synchronizers with parameters of their own", needs=("synchronizers=two",)
)
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


@wrong(trigger="2 ranks, a parameter in two groups", needs=("listed=in two groups",))
class ReducesPerGroup(PlainGrads):
    """A parameter that two groups list is reduced for each of them."""

    @override
    def bind(self) -> None:
        each_once = itertools.chain(*map(dict.fromkeys, self.param_groups))
        self.parameters = [p for p in each_once if p.requires_grad]


@wrong(trigger="2 ranks with $RANK set, as launchers set it")
class ReadsTheEnvironment(PlainGrads):
    """A rank is taken from `$RANK`; where it is missing, from the group."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        rank = int(os.environ.get("RANK", dist.get_rank()))
        part = local_of(gradient)
        if rank % 8 == 0 and "LOCAL_WORLD_SIZE" in os.environ:
            part.mul_(2)
        super().reduce(gradient)


@wrong(trigger="2 processes with hash seeds of their own")
class OrdersByHash(PlainGrads):
    """Gradients are reduced in the order of hashes of their descriptions."""

    @override
    def wait(self) -> None:
        self.parameters.sort(key=lambda p: hash(str((*p.shape, p.dtype))))
        super().wait()


@wrong(trigger="a mesh of 2 axes with 4 ranks: the others wait in `new_group`")
class MakesItsOwnAlone(OwnGroups):
    """Each rank makes the groups alone of which it is a member."""

    @override
    def wanted(self) -> list[tuple[int, ...]]:
        return [ranks for ranks in super().wanted() if dist.get_rank() in ranks]


@wrong(trigger="a mesh of 2 axes with 4 ranks")
class MakesThemInItsOrder(OwnGroups):
    """Each rank makes its own groups first, and those of others later."""

    @override
    def wanted(self) -> list[tuple[int, ...]]:
        rank = dist.get_rank()
        return sorted(super().wanted(), key=lambda ranks: rank not in ranks)
