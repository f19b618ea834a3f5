"""Strategies for DTensor placements."""

from __future__ import annotations

from hypothesis import strategies as st

from syncverify.scenario import REPLICATE, MeshSpec, shard


def placements(mesh: MeshSpec, *, num_dims: int) -> st.SearchStrategy[tuple[str, ...]]:
    """Generate one placement per mesh axis: replicated, or sharded along any dim.

    Shrinks toward replication over every axis. Dims need not be divisible by the axis:
    local shards may be uneven or empty.

    Args:
        mesh: The mesh.
        num_dims: Number of dims of the tensor; a scalar can only be replicated.

    Returns:
        A strategy for tuples of placement codes.
    """
    codes = [REPLICATE, *(shard(dim) for dim in range(num_dims))]
    return st.tuples(*(st.sampled_from(codes) for _ in mesh.shape))
