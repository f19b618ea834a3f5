"""Strategies for device meshes."""

from __future__ import annotations

import functools
import math

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario import MeshSpec

_AXIS_NAMES = ("dp", "tp")


@functools.lru_cache
def meshes(*, max_ranks: int = 4, max_axes: int = 2) -> st.SearchStrategy[MeshSpec]:
    """Generate meshes of one or two named axes, axes of size 1 included.

    Shrinks toward few ranks, then few axes.

    Args:
        max_ranks: Largest number of ranks.
        max_axes: Largest number of axes, 1 or 2.

    Returns:
        A strategy for `MeshSpec`.

    Raises:
        InvalidArgument: No such mesh exists.
    """
    if max_ranks < 1:
        raise InvalidArgument(f"expected max_ranks >= 1, got max_ranks={max_ranks!r}")
    if max_axes not in {1, 2}:
        raise InvalidArgument(f"expected max_axes of 1 or 2, got max_axes={max_axes!r}")
    shapes: list[tuple[int, ...]] = [(size,) for size in range(1, max_ranks + 1)]
    if max_axes > 1:
        shapes += [
            (m, n)
            for m in range(1, max_ranks + 1)
            for n in range(1, max_ranks // m + 1)
        ]
    shapes.sort(key=lambda shape: (math.prod(shape), len(shape), shape))
    # Meshes without a degenerate axis are few among the products: list them more often.
    shapes += [shape for shape in shapes if len(shape) > 1 and min(shape) > 1] * 3
    return st.sampled_from(shapes).map(
        lambda shape: MeshSpec(shape, _AXIS_NAMES[: len(shape)])
    )
