"""The reduction of the gradient of one parameter, and the ranks of it.

Note [Reductions of mesh axes]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Placements tell on which mesh axes a gradient is incomplete: each rank of a replicated
axis holds its own contribution. So a replicated axis is summed, and a sharded axis is
not. Placements do not tell whether the ranks of an axis contribute different values.
Where each of them computes the whole gradient, the sum is too large by the size of the
axis. Such an axis needs the reduction "none". An axis of size 1 has no other rank, so
its reduction has no effect.

All summed axes of a parameter make one set of ranks, with one collective. Parameters
with equal sets share buckets, also across meshes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from syncverify.synchronizer.contract.arguments import AxisReduction
from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.contract.errors import (
    InvalidArgumentError,
    UnsupportedPlacementError,
)
from syncverify.synchronizer.ranks.process_groups import usable_ranks
from syncverify.synchronizer.ranks.scope import (
    ReduceScope,
    mesh_scope,
    reduce_axes,
    spanned_ranks,
)


@dataclass(frozen=True, slots=True)
class Reduction:
    """The reduction of one gradient.

    Attributes:
        scope: The ranks that sum the gradient; None keeps it local.
        divisor: Number that divides the sum.
        unreduced_ranks: Ranks of the axes with the reduction "none", this rank
            included; empty without such axes.
        axis_reductions: Reduction of each replicated mesh axis of size 2 or more; empty
            where all are "sum".
    """

    scope: ReduceScope | None = None
    divisor: int = 1
    unreduced_ranks: tuple[int, ...] = ()
    axis_reductions: tuple[AxisReduction, ...] = ()


def reduction_of(
    parameter: nn.Parameter, name: str, config: SynchronizerConfig
) -> Reduction:
    """Return the reduction of a parameter's gradient."""
    if not isinstance(parameter, DTensor):
        return _group_reduction(config)
    mesh = parameter.device_mesh
    axis_reductions = _axis_reductions(parameter, name, config)
    scope = mesh_scope(mesh, _axes(axis_reductions, "sum", "avg"))
    # A rank outside of the mesh sums nothing, and so divides nothing.
    averaged = _axes(axis_reductions, "avg") if scope else ()
    unreduced = _axes(axis_reductions, "none")
    has_options = set(axis_reductions.values()) - {"sum"}
    return Reduction(
        scope,
        math.prod(map(mesh.size, averaged)),
        spanned_ranks(mesh, unreduced) if unreduced else (),
        tuple(axis_reductions.values()) if has_options else (),
    )


def refuse_unknown_axes(
    parameters: Iterable[nn.Parameter], config: SynchronizerConfig
) -> None:
    """Refuse reductions of axes that no parameter's mesh has."""
    if not config.axis_reductions:
        return
    meshes = {p.device_mesh for p in parameters if isinstance(p, DTensor)}
    known = {axis for mesh in meshes for axis in _axis_keys(mesh)}
    unknown = [axis for axis in config.axis_reductions if axis not in known]
    if unknown:
        raise InvalidArgumentError(
            f"no mesh has an axis {', '.join(map(repr, unknown))}",
            expected=f"axes among {', '.join(sorted(map(repr, known))) or 'none at all'}",
            got=f"axis_reductions={config.axis_reductions!r}",
        )


def _axis_reductions(
    parameter: DTensor, name: str, config: SynchronizerConfig
) -> dict[int, AxisReduction]:
    """Return the reduction of each replicated axis of size 2 or more."""
    mesh = parameter.device_mesh
    keys = _axis_keys(mesh)
    try:
        axes = reduce_axes(mesh, parameter.placements)
    except ValueError as error:
        raise UnsupportedPlacementError(
            f"parameter {name} has a placement that cannot be synchronized",
            expected="Replicate or Shard on every mesh axis",
            got=str(error),
            where=f"mesh axes {keys}",
        ) from error
    return {axis: config.axis_reductions.get(keys[axis], "sum") for axis in axes}


def _axis_keys(mesh: DeviceMesh) -> tuple[str | int, ...]:
    return mesh.mesh_dim_names or tuple(range(mesh.ndim))


def _axes(
    axis_reductions: dict[int, AxisReduction], *wanted: AxisReduction
) -> tuple[int, ...]:
    return tuple(axis for axis, found in axis_reductions.items() if found in wanted)


def _group_reduction(config: SynchronizerConfig) -> Reduction:
    group = config.process_group
    ranks = () if group is None else usable_ranks(group)
    if len(ranks) < 2:
        return Reduction()
    divisor = len(ranks) if config.process_group_reduction == "avg" else 1
    return Reduction(ReduceScope(ranks, group=group), divisor)
