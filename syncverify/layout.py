"""Who holds and who contributes what: pure geometry of a scenario's mesh.

Nothing here asks torch: these rules are the harness's own statement of what DTensor
placements mean, and a test compares them with torch's.
"""

from __future__ import annotations

import functools
import itertools
import math

from syncverify.scenario import (
    PARTIAL,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    sharded_dim,
)


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


def axis_name(mesh: MeshSpec, axis: int) -> str | int:
    """Return what messages call a mesh axis: its name, or its index if it has none."""
    return mesh.axis_names[axis] if mesh.axis_names else axis


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
        if placement in {REPLICATE, PARTIAL} and size > 1
    )


def contributing_ranks(
    mesh: MeshSpec, parameter: ParameterSpec, rank: int
) -> tuple[int, ...]:
    """List the ranks whose gradients are summed into this rank's, itself included."""
    axes = reduce_axes(mesh, parameter)
    return ranks_along(mesh, axes, rank)


def ranks_along(mesh: MeshSpec, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """List the ranks that differ from `rank` on the given mesh axes at most."""
    own = coordinates(mesh, rank)
    first = sum(
        0 if axis in axes else index * stride
        for axis, (index, stride) in enumerate(zip(own, strides(mesh), strict=True))
    )
    return _ranks_from(mesh, axes, first)


# By the first rank, so that the members of a large set share one tuple.
@functools.lru_cache(maxsize=4096)
def _ranks_from(mesh: MeshSpec, axes: tuple[int, ...], first: int) -> tuple[int, ...]:
    steps = [
        range(0, size * stride, stride)
        for axis, (size, stride) in enumerate(
            zip(mesh.shape, strides(mesh), strict=True)
        )
        if axis in axes
    ]
    return tuple(first + sum(step) for step in itertools.product(*steps))


def strides(mesh: MeshSpec) -> tuple[int, ...]:
    """Return how far ranks lie apart that are neighbors on each mesh axis."""
    return tuple(math.prod(mesh.shape[axis + 1 :]) for axis in range(len(mesh.shape)))


def local_shape(mesh: MeshSpec, parameter: ParameterSpec, rank: int) -> tuple[int, ...]:
    """Return the shape of the part of a parameter that one rank holds.

    A sharded dim is cut into chunks of equal size, rounded up; the last non-empty
    chunk may be smaller, and ranks beyond it hold none. Axes cut from left to right;
    strided ones in another order, which changes no size, since scenarios have them
    where chunks are of equal size only.

    Source:
        `torch.chunk`, whose rule `torch.distributed.tensor.Shard` follows.
    """
    shape = list(parameter.global_shape)
    own = coordinates(mesh, rank)
    for axis, placement in enumerate(parameter.placements or ()):
        dim = sharded_dim(placement)
        if dim is not None:
            chunk = math.ceil(shape[dim] / mesh.shape[axis])
            shape[dim] = max(0, min(chunk, shape[dim] - own[axis] * chunk))
    return tuple(shape)
