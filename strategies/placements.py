"""Strategies for DTensor placements."""

from __future__ import annotations

import functools
import itertools
from typing import TypeVar

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contract_meshes import left_placements
from syncverify.scenario.feature_table import TABLE
from syncverify.scenario.specs import (
    ABSENT,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    Placements,
    is_strided,
    shard,
    strided_shard,
)
from syncverify.strategies.weights import with_rare

# Extra weight of replication; the number of other placements grows with dims and axes.
_MAX_REPLICATED = 64
P = TypeVar("P", bound=Placements | None)


@functools.lru_cache(maxsize=1024)
def placements(
    mesh: MeshSpec,
    *,
    num_dims: int,
    sub_meshes: bool = False,
    strided: bool = False,
    partial: bool = False,
    capabilities: Capabilities | None = None,
) -> st.SearchStrategy[Placements | None]:
    """Generate one placement per mesh axis, or None for an ordinary tensor.

    Shrinks toward replication over every axis. Local shards may be uneven or empty, unless
    they are strided: a dim need not be divisible by the size of the axis.

    Args:
        mesh: Mesh of the tensor.
        num_dims: Number of tensor dims; a scalar can only be replicated.
        sub_meshes: Whether the tensor lives on some mesh axes only, now and then.
        strided: Whether an axis cuts a dim that a later axis cuts first, now and then.
        partial: Whether the gradient arrives as `Partial`, now and then.
        capabilities: Contract that may leave out placements; None leaves out none.

    Returns:
        A strategy for tuples of placement codes, drawn by one choice.
    """
    codes = (REPLICATE, *(shard(dim) for dim in range(num_dims)))
    placed = list(itertools.product(codes, repeat=len(mesh.shape)))
    replicated, *others = placed
    others = _left(others, mesh, capabilities)
    # A synchronizer reduces replicated parameters: they get more weight, ordinary ones some.
    often = min(len(others), _MAX_REPLICATED)
    usual: list[Placements | None] = [replicated, None, *others]
    usual += [*[replicated] * (1 + often), *[None] * (1 + often // 4)]
    usual = _left(usual, mesh, capabilities)
    kinds = {
        (ABSENT,): sub_meshes and bool(mesh.axis_names) and len(mesh.shape) > 1,
        (PARTIAL,): partial,
        tuple(map(strided_shard, range(num_dims))): strided,
    }
    wanted = tuple(kind for kind, is_wanted in kinds.items() if is_wanted)
    listed = _rare(codes, wanted, num_axes=len(mesh.shape))
    rare = [_left(kind, mesh, capabilities) for kind in listed]
    return with_rare(usual, *rare, one_in=TABLE["placement"].one_in)


def _left(
    listed: list[P], mesh: MeshSpec, capabilities: Capabilities | None
) -> list[P]:
    """List the placements that a contract leaves."""
    if capabilities is None:
        return listed
    return left_placements(capabilities, mesh, listed)


@functools.lru_cache
def _rare(
    codes: tuple[str, ...], kinds: tuple[tuple[str, ...], ...], *, num_axes: int
) -> list[list[Placements | None]]:
    """List for each kind the placements with a code of that kind and none of a later kind."""
    known = [*codes, *itertools.chain(*kinds)]
    legal = [
        placed
        for placed in itertools.product(known, repeat=num_axes)
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
        not is_strided(code) or code.removeprefix("_") in placed[axis:]
        for axis, code in enumerate(placed)
    )
