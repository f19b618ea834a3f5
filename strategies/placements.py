"""Strategies for DTensor placements."""

import functools
import itertools

from hypothesis import strategies as st

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.contract_meshes import has_placements
from syncverify.scenario.feature_table import TABLE
from syncverify.scenario.specs import (
    ABSENT,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    Placements,
    is_legal,
    shard,
    strided_shard,
)
from syncverify.strategies.weights import with_rare

# Extra weight of replication; the number of other placements grows with dims and axes.
_MAX_REPLICATED = 64


@functools.lru_cache(maxsize=1024)
def placements(
    mesh: MeshSpec,
    *,
    num_dims: int,
    sub_meshes: bool = False,
    strided: bool = False,
    partial: bool = False,
    capabilities: Capabilities = EVERYTHING,
) -> st.SearchStrategy[Placements | None]:
    """Generate one placement per mesh axis, or None for an ordinary tensor.

    Shrinks toward replication over every axis. Local shards may be uneven or empty, unless
    they are strided: a dim need not be divisible by the size of the axis. It takes one choice.

    Args:
        num_dims: Number of tensor dims; a scalar can only be replicated.
        sub_meshes: Whether the tensor lives on some mesh axes only, now and then.
        strided: Whether an axis cuts a dim that a later axis cuts first, now and then.
        partial: Whether the gradient arrives as `Partial`, now and then.
        capabilities: Contract that may leave out placements.
    """
    codes = (REPLICATE, *map(shard, range(num_dims)))
    replicated, *others = itertools.product(codes, repeat=len(mesh.shape))
    is_left = functools.partial(has_placements, capabilities, mesh)
    others = [*filter(is_left, others)]
    # A synchronizer reduces replicated parameters: they get more weight, ordinary ones some.
    often = min(len(others), _MAX_REPLICATED)
    usual: list[Placements | None] = [replicated, None, *others]
    usual += [*[replicated] * (1 + often), *[None] * (1 + often // 4)]
    kinds = {
        (ABSENT,): sub_meshes and bool(mesh.axis_names) and len(mesh.shape) > 1,
        (PARTIAL,): partial,
        tuple(map(strided_shard, range(num_dims))): strided,
    }
    wanted = tuple(kind for kind, is_wanted in kinds.items() if is_wanted)
    listed = _rare(codes, wanted, num_axes=len(mesh.shape))
    kinds_left = [[*filter(is_left, kind)] for kind in (usual, *listed)]
    return with_rare(*kinds_left, one_in=TABLE["placement"].one_in)


@functools.lru_cache
def _rare(
    codes: tuple[str, ...], kinds: tuple[tuple[str, ...], ...], *, num_axes: int
) -> list[list[Placements | None]]:
    """List for each kind the placements with a code of that kind and none of a later kind."""
    known = [*codes, *itertools.chain(*kinds)]
    legal = [*filter(is_legal, itertools.product(known, repeat=num_axes))]
    later = [{*itertools.chain(*kinds[n + 1 :])} for n in range(len(kinds))]
    return [
        [p for p in legal if not set(kind).isdisjoint(p) and others.isdisjoint(p)]
        for kind, others in zip(kinds, later, strict=True)
    ]
