"""Strategies for DTensor placements."""

from __future__ import annotations

import functools
import itertools

from hypothesis import strategies as st

from syncverify.scenario import REPLICATE, MeshSpec, shard


@functools.lru_cache
def placements(
    mesh: MeshSpec, *, num_dims: int
) -> st.SearchStrategy[tuple[str, ...] | None]:
    """Generate one placement per mesh axis, or None for a plain tensor.

    Shrinks toward replication over every axis. Dims need not be divisible by the axis:
    local shards may be uneven or empty.

    Args:
        mesh: The mesh.
        num_dims: Number of dims of the tensor; a scalar can only be replicated.

    Returns:
        A strategy for tuples of placement codes, one choice each.
    """
    codes = [REPLICATE, *(shard(dim) for dim in range(num_dims))]
    placed = list(itertools.product(codes, repeat=len(mesh.shape)))
    replicated, *others = placed
    # Listed more often: replication is what a synchronizer exists for.
    weights = {replicated: 1 + len(others), None: 1 + len(others) // 4}
    few = [choice for choice, weight in weights.items() for _ in range(weight)]
    return st.sampled_from([replicated, None, *others, *few])
