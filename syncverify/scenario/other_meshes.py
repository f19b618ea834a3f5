"""Meshes of parameters: the scenario's own one, and others over the same ranks.

A job has several meshes over its ranks, such as one for dense layers and one for experts. A
parameter names its mesh by a word of the topic `on_mesh`; the scenario's mesh decides its shape.
"""

import functools
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
