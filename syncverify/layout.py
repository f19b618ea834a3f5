"""Who holds and who contributes what: pure geometry of a scenario's mesh.

Nothing here asks torch: these rules are the harness's own statement of what DTensor
placements mean, and a test compares them with torch's.
"""

from __future__ import annotations

import functools
import math

from syncverify.scenario import REPLICATE, MeshSpec, ParameterSpec


def coordinates(mesh: MeshSpec, rank: int) -> tuple[int, ...]:
    """Locate a rank on the mesh.

    Args:
        mesh: The mesh, ranks in row-major order.
        rank: Global rank.

    Returns:
        One index per mesh axis.
    """
    indices = []
    for size in reversed(mesh.shape):
        rank, index = divmod(rank, size)
        indices.append(index)
    return tuple(reversed(indices))


def reduce_axes(mesh: MeshSpec, parameter: ParameterSpec) -> tuple[int, ...]:
    """Return the mesh axes over which the parameter's gradient is summed.

    Axes of size 1 hold one rank: nothing is exchanged over them.
    """
    if parameter.placements is None:
        return ()
    return tuple(
        axis
        for axis, (placement, size) in enumerate(
            zip(parameter.placements, mesh.shape, strict=True)
        )
        if placement == REPLICATE and size > 1
    )


def contributing_ranks(
    mesh: MeshSpec, parameter: ParameterSpec, rank: int
) -> tuple[int, ...]:
    """List the ranks whose gradients are summed into this rank's, itself included."""
    axes = reduce_axes(mesh, parameter)
    return ranks_along(mesh, axes, rank)


@functools.lru_cache(maxsize=4096)
def ranks_along(mesh: MeshSpec, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """List the ranks that differ from `rank` on the given mesh axes at most."""
    fixed = [axis for axis in range(len(mesh.shape)) if axis not in axes]
    own = coordinates(mesh, rank)
    return tuple(
        other
        for other in range(mesh.num_ranks)
        if all(coordinates(mesh, other)[axis] == own[axis] for axis in fixed)
    )


def local_shape(mesh: MeshSpec, parameter: ParameterSpec, rank: int) -> tuple[int, ...]:
    """Return the shape of the part of a parameter that one rank holds.

    A sharded dim is cut into chunks of equal size, rounded up; the last non-empty
    chunk may be smaller, and ranks beyond it hold none. Axes cut from left to right.

    Source:
        `torch.chunk`, whose rule `torch.distributed.tensor.Shard` follows.
    """
    shape = list(parameter.global_shape)
    own = coordinates(mesh, rank)
    for axis, placement in enumerate(parameter.placements or ()):
        if placement != REPLICATE:
            dim = int(placement[1:])
            chunk = math.ceil(shape[dim] / mesh.shape[axis])
            shape[dim] = max(0, min(chunk, shape[dim] - own[axis] * chunk))
    return tuple(shape)
