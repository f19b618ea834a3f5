"""Layout of a scenario's meshes: the part that each rank holds, and the ranks of each sum.

Nothing here asks torch. These rules are the harness's own statement of the meaning of DTensor
placements, and a test compares them with torch's.

A job has several meshes over its ranks, such as one for dense layers and one for experts. A
parameter names its mesh by a word of the topic `on_mesh`; the scenario's mesh decides its shape.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from syncverify.scenario.specs import (
    OWN_MESH,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    Placements,
    shard,
    sharded_dim,
)

TRANSPOSED: Final = "transposed"
RESHAPED: Final = "reshaped"
# Order of the ranks in a mesh with its axes in the reverse order.
_TRANSPOSED_ORDERS: Final = {"row_major": "column_major", "permuted": "reversed"}
_SECOND_AXIS: Final = "ep"
# Bytes of one element.
_WIDTHS: Final = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@functools.lru_cache(maxsize=4096)
def coordinates(mesh: MeshSpec, rank: int) -> tuple[int, ...]:
    """Return the coordinates of a global rank, one per mesh axis."""
    along = zip(strides(mesh), mesh.shape, strict=True)
    place = mesh.num_ranks - 1 - rank if mesh.descends else rank
    return tuple(place // abs(stride) % size for stride, size in along)


def rank_at(mesh: MeshSpec, place: tuple[int, ...]) -> int:
    """Return the global rank at some coordinates."""
    along = zip(place, strides(mesh), strict=True)
    rank = sum(index * stride for index, stride in along)
    return mesh.num_ranks - 1 + rank if mesh.descends else rank


def axis_name(mesh: MeshSpec, axis: int) -> str | int:
    """Return the name of a mesh axis for messages, or its index if it has no name."""
    return mesh.axis_names[axis] if mesh.axis_names else axis


def reduce_axes(mesh: MeshSpec, parameter: ParameterSpec) -> tuple[int, ...]:
    """Return the axes of its mesh over which the parameter's gradient is summed.

    `mesh` is the scenario's. Axes of size 1 are left out: one rank exchanges nothing.
    """
    shape = mesh_of(mesh, parameter).shape
    return tuple(
        axis
        for axis, placement in enumerate(parameter.placements or ())
        if placement in {REPLICATE, PARTIAL} and shape[axis] > 1
    )


def is_managed(parameter: ParameterSpec) -> bool:
    """Tell whether a mesh axis, of any size, reduces the parameter's gradient."""
    return not {REPLICATE, PARTIAL}.isdisjoint(parameter.placements or ())


def contributing_ranks(
    mesh: MeshSpec, parameter: ParameterSpec, rank: int
) -> tuple[int, ...]:
    """List the ranks that contribute to this rank's gradient, itself included."""
    axes = reduce_axes(mesh, parameter)
    return ranks_along(mesh_of(mesh, parameter), axes, rank)


@functools.lru_cache(maxsize=4096)
def ranks_along(mesh: MeshSpec, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """List the ranks that share all coordinates with `rank` but those on some mesh axes."""
    own = enumerate(coordinates(mesh, rank))
    first = rank_at(mesh, tuple(0 if axis in axes else index for axis, index in own))
    return _ranks_from(mesh, axes, first)


# Cached by the first rank, so that all members of a large set share one tuple.
@functools.lru_cache(maxsize=4096)
def _ranks_from(mesh: MeshSpec, axes: tuple[int, ...], first: int) -> tuple[int, ...]:
    along = [(mesh.shape[axis], strides(mesh)[axis]) for axis in axes]
    offsets = [range(0, size * stride, stride) for size, stride in along]
    return tuple(sorted(first + sum(each) for each in itertools.product(*offsets)))


@functools.lru_cache(maxsize=64)
def strides(mesh: MeshSpec) -> tuple[int, ...]:
    """Return the distance between ranks that are neighbors, one number per mesh axis."""
    axes, sign = range(len(mesh.shape)), -1 if mesh.descends else 1
    if mesh.first_axis_first:
        return tuple(sign * math.prod(mesh.shape[:axis]) for axis in axes)
    return tuple(sign * math.prod(mesh.shape[axis + 1 :]) for axis in axes)


@functools.lru_cache(maxsize=4096)  # each micro-batch of each rank asks for the shape
def local_shape(mesh: MeshSpec, parameter: ParameterSpec, rank: int) -> tuple[int, ...]:
    """Return the shape of the part of a parameter that one rank holds.

    A sharded dim is cut into chunks of equal size, rounded up. The last non-empty chunk
    may be smaller, and ranks after it hold none. Axes cut from left to right. Strided axes
    cut in another order, which changes no size: scenarios allow them only where all chunks
    are equal.

    Source:
        `torch.chunk`; `torch.distributed.tensor.Shard` follows the same rule.
    """
    shape, mesh = list(parameter.global_shape), mesh_of(mesh, parameter)
    own = coordinates(mesh, rank)
    for axis, placement in enumerate(parameter.placements or ()):
        dim = sharded_dim(placement)
        if dim is not None:
            chunk = math.ceil(shape[dim] / mesh.shape[axis])
            shape[dim] = max(0, min(chunk, shape[dim] - own[axis] * chunk))
    return tuple(shape)


def most_group_bytes(mesh: MeshSpec, parameters: Iterable[ParameterSpec]) -> int:
    """Return the bytes of gradients on rank 0 in the parameter group with the most."""
    num_bytes: Counter[int] = Counter()
    for spec in parameters:
        if spec.requires_grad:
            num_bytes[spec.group] += local_bytes(mesh, spec, 0)
    return max(num_bytes.values(), default=0)


def local_bytes(mesh: MeshSpec, parameter: ParameterSpec, rank: int) -> int:
    """Return the bytes of a rank's part of a gradient."""
    return math.prod(local_shape(mesh, parameter, rank)) * itemsize(parameter)


def itemsize(parameter: ParameterSpec) -> int:
    """Return the bytes of one element of a gradient."""
    return _WIDTHS[parameter.effective_grad_dtype]


def mesh_of(mesh: MeshSpec, parameter: ParameterSpec) -> MeshSpec:
    """Return the mesh of a parameter; `mesh` is the scenario's."""
    word = parameter.on_mesh
    return mesh if word == OWN_MESH else other_mesh(mesh, word)


def meshes_of(
    mesh: MeshSpec, parameters: Iterable[ParameterSpec]
) -> tuple[MeshSpec, ...]:
    """List the scenario's mesh, and then those of its parameters, each once."""
    return (*dict.fromkeys((mesh, *(mesh_of(mesh, spec) for spec in parameters))),)


@functools.lru_cache(maxsize=1024)
def other_mesh(mesh: MeshSpec, word: str) -> MeshSpec:
    """Return the mesh that a word of the topic `on_mesh` makes of the scenario's mesh.

    * `transposed` has the same axes in the reverse order.
    * `reshaped` has one axis of all ranks. Of a mesh of one axis it has two: the first one has as
      many ranks as the least prime factor, and keeps the name.
    """
    shape, names = mesh.shape, mesh.axis_names
    if word == TRANSPOSED:
        order = _TRANSPOSED_ORDERS[mesh.order]
        return MeshSpec(shape[::-1], names[::-1], order)
    if len(shape) > 1:
        return MeshSpec((mesh.num_ranks,), names[:1], mesh.order)
    factors = (n for n in range(2, mesh.num_ranks + 1) if mesh.num_ranks % n == 0)
    first = next(factors, 1)
    second = _SECOND_AXIS if _SECOND_AXIS not in names else "dp"
    names = (*names, second) if names else ()
    return MeshSpec((first, mesh.num_ranks // first), names, mesh.order)


def on_mesh(mesh: MeshSpec, parameter: ParameterSpec, word: str) -> ParameterSpec:
    """Put a parameter on another mesh than the scenario's, which `mesh` is.

    Placements stay where they fit; an ordinary parameter stays on no mesh.
    """
    if parameter.placements is None:
        return replace(parameter, on_mesh=OWN_MESH)
    moved = replace(parameter, on_mesh=word)
    num_axes = len(mesh_of(mesh, moved).shape)
    return replace(moved, placements=_fitted(parameter, parameter.placements, num_axes))


def _fitted(
    parameter: ParameterSpec, placements: Placements, num_axes: int
) -> Placements:
    """Return placements for a number of axes, of which one replicates if one did."""
    if len(placements) == num_axes:
        return placements
    dims = [dim for code in placements if (dim := sharded_dim(code)) is not None]
    replicates = not {REPLICATE, PARTIAL}.isdisjoint(placements)
    if num_axes == 1:
        return (REPLICATE,) if replicates or not dims else (shard(dims[0]),)
    # As an expert: replicated over one axis, and sharded over the other.
    first = dims[0] if dims else 0
    cut = shard(first) if first < len(parameter.global_shape) else REPLICATE
    return (REPLICATE, cut, *[REPLICATE] * (num_axes - 2))
