"""Strategies for device meshes."""

import functools
import math
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.contract_meshes import AXIS_NAMES, has_mesh, mesh_shapes
from syncverify.scenario.feature_table import TABLE
from syncverify.scenario.specs import MeshSpec
from syncverify.strategies.weights import with_rare


@functools.lru_cache
def meshes(
    *,
    max_ranks: int = 4,
    max_axes: int = 2,
    unnamed: bool = False,
    permuted: bool = False,
    capabilities: Capabilities = EVERYTHING,
) -> st.SearchStrategy[MeshSpec]:
    """Generate meshes of up to `max_axes` axes, of three now and then; an axis may have size 1.

    Shrinks toward named axes, then few ranks, then few axes.

    Args:
        max_axes: Largest number of axes, from 1 to 3.
        unnamed: Whether axes have no names, now and then.
        permuted: Whether ranks are in another order, now and then.
        capabilities: Contract that may leave out meshes.

    Raises:
        InvalidArgument: `max_ranks` or `max_axes` is out of range, or no mesh is left.
    """
    if max_ranks < 1:
        raise InvalidArgument(f"expected max_ranks >= 1, got max_ranks={max_ranks!r}")
    if max_axes not in {1, 2, 3}:
        raise InvalidArgument(f"expected max_axes of 1 to 3, got max_axes={max_axes!r}")
    flat = _shapes(max_ranks, range(1, min(max_axes, 2) + 1))
    deep = _shapes(max_ranks, range(3, max_axes + 1))
    kinds = [
        [*map(_named, flat)],
        [*map(_named, deep)],
        [MeshSpec(shape, ()) for shape in flat + deep if unnamed],
        [replace(_named(shape), order="permuted") for shape in flat + deep if permuted],
    ]
    kinds = [[m for m in kind if has_mesh(capabilities, m)] for kind in kinds]
    if not any(kinds):
        raise InvalidArgument(f"the contract leaves no mesh of up to {max_ranks} ranks")
    return with_rare(*kinds, one_in=TABLE["mesh"].one_in)


def _shapes(max_ranks: int, nums_axes: range) -> list[tuple[int, ...]]:
    """List mesh shapes, the smallest first, with weights as repetitions at the end."""
    shapes = [s for num_axes in nums_axes for s in mesh_shapes(max_ranks, num_axes)]
    shapes.sort(key=lambda shape: (math.prod(shape), len(shape), shape))
    # Most products have an axis of size 1; meshes without one get more weight.
    return shapes + [s for s in shapes if len(s) > 1 and min(s) > 1] * 3


def _named(shape: tuple[int, ...]) -> MeshSpec:
    return MeshSpec(shape, AXIS_NAMES[: len(shape)])
