"""Sets of ranks, and the mesh axes that the placements of a parameter span."""

from collections.abc import Sequence
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
    """The ranks over which a gradient is summed, or compared.

    Two scopes are equal when their ranks are, whatever mesh they were found on.

    Attributes:
        ranks: Global ranks in ascending order, at least two, this rank included.
        mesh: A mesh on which these ranks are found; None if `group` is all there is.
        axes: The axes of `mesh` that span `ranks`, each of size 2 or more.
        group: A process group of these ranks that exists, if any.
    """

    ranks: tuple[int, ...]
    mesh: DeviceMesh | None = field(default=None, compare=False)
    axes: tuple[int, ...] = field(default=(), compare=False)
    group: dist.ProcessGroup | None = field(default=None, compare=False)


def reduce_axes(mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Find the mesh axes over which a gradient has to be summed.

    Args:
        mesh: The parameter's mesh.
        placements: The parameter's placements, one for each mesh axis.

    Returns:
        Indices of the replicated axes, without those of size 1.

    Raises:
        ValueError: A placement is neither Replicate nor sharded.
    """
    axes = []
    for axis, placement in enumerate(placements):
        # torch's strided shard is no subclass of Shard, yet holds a shard just as well.
        if isinstance(placement, Shard | _StridedShard):
            continue
        if not isinstance(placement, Replicate):
            raise ValueError(f"placement {placement} on mesh axis {axis}")
        if mesh.size(axis) > 1:
            axes.append(axis)
    return tuple(axes)


def shard_axes(mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, ...]:
    """Find the mesh axes over which a parameter is spread.

    Args:
        mesh: The parameter's mesh.
        placements: The parameter's placements, one for each mesh axis.

    Returns:
        Indices of the sharded axes, without those of size 1.
    """
    return tuple(
        axis
        for axis, placement in enumerate(placements)
        if isinstance(placement, Shard | _StridedShard) and mesh.size(axis) > 1
    )


def spanned_ranks(mesh: DeviceMesh, axes: Sequence[int]) -> tuple[int, ...]:
    """List the global ranks that differ from this one along `axes` only.

    Args:
        mesh: A mesh that contains this rank.
        axes: Indices of mesh axes.

    Returns:
        The ranks in ascending order, this one included; none outside of the mesh.
    """
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return ()
    index = tuple(
        slice(None) if axis in axes else coordinate[axis] for axis in range(mesh.ndim)
    )
    return tuple(sorted(mesh.mesh[index].flatten().tolist()))


def mesh_scope(mesh: DeviceMesh, axes: Sequence[int]) -> ReduceScope | None:
    """Collect the ranks that meet along mesh axes.

    Args:
        mesh: A mesh, of which this rank need not be a part.
        axes: Indices of mesh axes, each of size 2 or more.

    Returns:
        The ranks; None if this one meets nobody.
    """
    ranks = spanned_ranks(mesh, axes)
    return ReduceScope(ranks, mesh, tuple(axes)) if len(ranks) > 1 else None
