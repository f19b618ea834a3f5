"""What happens to the gradient of one parameter, over which ranks.

Note [Reductions of mesh axes]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Placements say where a gradient is incomplete: each rank of a replicated axis holds what
*it* contributed. So a replicated axis is summed and a sharded one left alone. What they do
not say is whether the ranks of an axis contribute different things at all. Where each of
them computes the whole gradient, a sum is too large by the size of the axis: that axis
wants "none", or "check", which makes sure. Axes of size 1 hold nobody to reduce with, so
nothing that is said about them changes anything.

Summed axes make one set of ranks, and so do checked ones, each with one collective. What is
the same for two parameters shares buckets, on whatever meshes it was found.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from .arguments import AxisReduction
from .config import SynchronizerConfig
from .errors import InvalidArgumentError, UnsupportedPlacementError
from .process_groups import usable_ranks
from .scope import ReduceScope, mesh_scope, reduce_axes, spanned_ranks


@dataclass(frozen=True, slots=True)
class Reduction:
    """What happens to one gradient.

    Attributes:
        scope: The ranks that sum it; None where it stays local.
        divisor: What the sum is divided by.
        check: The ranks that must hold the same before; None where there is no check.
        alone: Ranks that replicate the parameter and are told to do nothing about it, this
            one included; empty where there are none.
        words: What is done over each mesh axis, where anybody said so.
    """

    scope: ReduceScope | None = None
    divisor: int = 1
    check: ReduceScope | None = None
    alone: tuple[int, ...] = ()
    words: tuple[AxisReduction, ...] = ()


def reduction_of(
    parameter: nn.Parameter, name: str, config: SynchronizerConfig
) -> Reduction:
    """Find out what happens to the gradient of a parameter.

    Args:
        parameter: A DTensor, or a plain one.
        name: For messages.
        config: What is to be reduced in another way than placements say.

    Returns:
        The reduction.

    Raises:
        UnsupportedPlacementError: A placement is neither Replicate nor sharded.
        ProcessGroupError: The group for plain parameters cannot be used.
    """
    if not isinstance(parameter, DTensor):
        return _over_group(config)
    mesh = parameter.device_mesh
    words = _words(parameter, name, config)
    scope = mesh_scope(mesh, _axes(words, "sum", "avg"))
    # Nobody divides on a mesh of which this rank is not a part.
    averaged = _axes(words, "avg") if scope else ()
    return Reduction(
        scope,
        math.prod(map(mesh.size, averaged)),
        mesh_scope(mesh, _axes(words, "check")),
        spanned_ranks(mesh, alone) if (alone := _axes(words, "none")) else (),
        tuple(words.values()) if set(words.values()) - {"sum"} else (),
    )


def refuse_unknown_axes(
    parameters: Iterable[nn.Parameter], config: SynchronizerConfig
) -> None:
    """Refuse reductions of axes that no parameter's mesh has.

    Args:
        parameters: All of them.
        config: The axes are its keys.

    Raises:
        InvalidArgumentError: There is no such axis.
    """
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


def _words(
    parameter: DTensor, name: str, config: SynchronizerConfig
) -> dict[int, AxisReduction]:
    """Say what is done over each replicated axis of size 2 or more."""
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


def _axes(words: dict[int, AxisReduction], *wanted: AxisReduction) -> tuple[int, ...]:
    return tuple(axis for axis, word in words.items() if word in wanted)


def _over_group(config: SynchronizerConfig) -> Reduction:
    group = config.process_group
    ranks = () if group is None else usable_ranks(group)
    if len(ranks) < 2:
        return Reduction()
    divisor = len(ranks) if config.process_group_reduction == "avg" else 1
    return Reduction(ReduceScope(ranks, group=group), divisor)
