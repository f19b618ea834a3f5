"""Sets of ranks, and the mesh axes that the placements of a parameter span."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.placement_types import (
    Placement,
    Replicate,
    Shard,
    _StridedShard,
)


@dataclass(frozen=True, slots=True)
class ReduceScope:
    """The ranks that sum a gradient, or that compare it.

    Two scopes are equal when their ranks are equal, on any mesh.

    Attributes:
        ranks: Global ranks in ascending order, at least two, this rank included.
        mesh: A mesh that contains these ranks; None where only `group` is known.
        axes: The axes of `mesh` that span `ranks`, each of size 2 or more.
        group: An existing process group of exactly these ranks, if there is one.
    """

    ranks: tuple[int, ...]
    mesh: DeviceMesh | None = field(default=None, compare=False)
    axes: tuple[int, ...] = field(default=(), compare=False)
    group: dist.ProcessGroup | None = field(default=None, compare=False)


def reduce_axes(mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Return the indices of the replicated mesh axes, without those of size 1.

    Raises:
        ValueError: A placement is neither Replicate nor sharded.
    """
    axes = []
    for axis, placement in enumerate(placements):
        # torch's strided shard is no subclass of Shard, but it holds a shard too.
        if isinstance(placement, Shard | _StridedShard):
            continue
        if not isinstance(placement, Replicate):
            raise ValueError(f"placement {placement} on mesh axis {axis}")
        if mesh.size(axis) > 1:
            axes.append(axis)
    return tuple(axes)


def shard_axes(mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Return the indices of the sharded mesh axes, without those of size 1."""
    return tuple(
        axis
        for axis, placement in enumerate(placements)
        if isinstance(placement, Shard | _StridedShard) and mesh.size(axis) > 1
    )


def spanned_ranks(mesh: DeviceMesh, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the global ranks that differ from this one along `axes` only.

    The ranks are ascending, this one included; there are none outside of the mesh.
    """
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return ()
    index = tuple(
        slice(None) if axis in axes else coordinate[axis] for axis in range(mesh.ndim)
    )
    return tuple(sorted(mesh.mesh[index].flatten().tolist()))


def rank_list(ranks: Iterable[int]) -> str:
    """Return ranks as text for a message: `0, 2, 4`."""
    return ", ".join(map(str, ranks))


def mesh_scope(mesh: DeviceMesh, axes: Sequence[int]) -> ReduceScope | None:
    """Return the ranks that differ along `axes` only; None where this rank is alone."""
    ranks = spanned_ranks(mesh, axes)
    return ReduceScope(ranks, mesh, tuple(axes)) if len(ranks) > 1 else None
