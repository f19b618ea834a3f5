"""Strategies for DTensor placements."""

from __future__ import annotations

import functools
import itertools

from hypothesis import strategies as st

from strategies.rarities import with_rare
from syncverify.scenario import (
    ABSENT,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    shard,
    strided_shard,
)

_ONE_RARE_PLACEMENT_IN = 9
_MAX_OFTEN = 64  # there are ever more others
Placements = tuple[str, ...]


@functools.lru_cache(maxsize=1024)
def placements(
    mesh: MeshSpec,
    *,
    num_dims: int,
    sub_meshes: bool = False,
    strided: bool = False,
    partial: bool = False,
) -> st.SearchStrategy[Placements | None]:
    """Generate one placement per mesh axis, or None for a plain tensor.

    Shrinks toward replication over every axis. Dims need not be divisible by the axis:
    local shards may be uneven or empty, unless they are strided.

    Args:
        mesh: The mesh.
        num_dims: Number of dims of the tensor; a scalar can only be replicated.
        sub_meshes: Whether the tensor may live on some axes only, now and then.
        strided: Whether an axis may cut what later axes cut before it, now and then.
        partial: Whether its gradient may arrive as `Partial`, now and then.

    Returns:
        A strategy for tuples of placement codes, one choice each.
    """
    codes = [REPLICATE, *(shard(dim) for dim in range(num_dims))]
    placed = list(itertools.product(codes, repeat=len(mesh.shape)))
    replicated, *others = placed
    # Listed more often: replication is what a synchronizer exists for.
    often = min(len(others), _MAX_OFTEN)
    usual = [replicated, None, *others, *[replicated] * (1 + often)]
    usual += [None] * (1 + often // 4)
    kinds = {
        (ABSENT,): sub_meshes and bool(mesh.axis_names) and len(mesh.shape) > 1,
        (PARTIAL,): partial,
        tuple(map(strided_shard, range(num_dims))): strided,
    }
    rare = _rare(codes, [kind for kind, wanted in kinds.items() if wanted], mesh)
    return with_rare(usual, *rare, one_in=_ONE_RARE_PLACEMENT_IN)


def _rare(
    codes: list[str], kinds: list[tuple[str, ...]], mesh: MeshSpec
) -> list[list[Placements | None]]:
    """List, for each kind, the placements that have a code of it and none of later ones."""
    known = [*codes, *itertools.chain(*kinds)]
    legal = [
        placed
        for placed in itertools.product(known, repeat=len(mesh.shape))
        if set(placed) != {ABSENT} and _is_cut_again(placed)
    ]
    later = [{*itertools.chain(*kinds[n + 1 :])} for n in range(len(kinds))]
    return [
        [p for p in legal if not set(kind).isdisjoint(p) and others.isdisjoint(p)]
        for kind, others in zip(kinds, later, strict=True)
    ]


def _is_cut_again(placed: Placements) -> bool:
    """Tell whether each strided shard has a later axis that cuts its dim first."""
    return all(
        not code.startswith("_") or code.removeprefix("_") in placed[axis:]
        for axis, code in enumerate(placed)
    )
