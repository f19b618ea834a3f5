"""Meshes, placements, dtypes and numbers that a contract leaves.

Strategies draw from these lists and `Space` counts them, so a value that a contract leaves
out is neither drawn nor missed.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import MAX_AXES
from syncverify.scenario.features import mesh_features, parameter_features
from syncverify.scenario.specs import (
    ABSENT,
    DTYPES,
    ORDERS,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    Placements,
    is_legal,
    is_strided,
    shard,
    sharded_dim,
    strided_shard,
)

AXIS_NAMES = ("dp", "tp", "ep")
# Dtypes of a parameter and of its gradient; None for the same dtype.
Dtypes = tuple[str, str | None]
_ALONE = MeshSpec((1,), AXIS_NAMES[:1])
# Topics that follow from the placements of a parameter alone.
_OF_PLACEMENTS = frozenset({"reduction", "parameters", "placement"})


def covers_all(capabilities: Capabilities, features: Iterable[tuple[str, str]]) -> bool:
    """Tell whether a contract covers each of some features."""
    return all(capabilities.covers(topic, value) for topic, value in features)


def numbers(topic: str, most: int, capabilities: Capabilities) -> list[int]:
    """List the numbers from 1 of a topic, such as `steps`, that a contract covers."""
    return [n for n in range(1, most + 1) if capabilities.covers(topic, str(n))]


def dtypes(capabilities: Capabilities) -> list[Dtypes]:
    """List the dtypes that a contract leaves for a parameter and its gradient."""
    left = list[Dtypes]()
    for dtype, grad_dtype in itertools.product(DTYPES, (None, *DTYPES)):
        spec = ParameterSpec("", (), None, dtype, grad_dtype)
        features = parameter_features(_ALONE, spec, {"dtype"})
        if dtype != grad_dtype and covers_all(capabilities, features):
            left.append((dtype, grad_dtype))
    return left


def mesh_shapes(max_ranks: int, num_axes: int) -> list[tuple[int, ...]]:
    """List the shapes of `num_axes` axes and at most `max_ranks` ranks."""
    shapes: list[tuple[int, ...]] = [()]
    for _ in range(num_axes):
        shapes = [
            (*shape, size)
            for shape in shapes
            for size in range(1, max_ranks // math.prod(shape) + 1)
        ]
    return shapes


def has_mesh(capabilities: Capabilities, mesh: MeshSpec) -> bool:
    """Tell whether a contract leaves a mesh, and some parameter on it."""
    is_covered = covers_all(capabilities, mesh_features(mesh))
    return is_covered and bool(_placed(capabilities, mesh))


def has_placements(
    capabilities: Capabilities, mesh: MeshSpec, placements: Placements | None
) -> bool:
    """Tell whether a contract leaves a parameter's placements on a mesh."""
    return _has_placements(capabilities, _pattern(mesh), placements)


def leaves_scalars(capabilities: Capabilities, mesh: MeshSpec) -> bool:
    """Tell whether a contract leaves a parameter without dims on a mesh."""
    return ("parameters", "scalar") in _placed(capabilities, mesh)


@functools.lru_cache(maxsize=16)
def features_by_mesh(
    capabilities: Capabilities, max_ranks: int
) -> frozenset[frozenset[Feature]]:
    """List for each mesh of a contract its features and those of placements on it."""
    return frozenset(
        frozenset(mesh_features(mesh)) | _placed(capabilities, mesh)
        for num_axes in range(1, MAX_AXES + 1)
        for shape in mesh_shapes(max_ranks, num_axes)
        for names in ((), AXIS_NAMES[:num_axes])
        for order in ORDERS
        if has_mesh(capabilities, mesh := MeshSpec(shape, names, order))
    )


@functools.lru_cache(maxsize=64)
def _pattern(mesh: MeshSpec) -> MeshSpec:
    """Return the least mesh on which placements have the same features."""
    shape = tuple(min(size, 2) for size in mesh.shape)
    return MeshSpec(shape, mesh.axis_names, mesh.order)


def _placed(capabilities: Capabilities, mesh: MeshSpec) -> frozenset[Feature]:
    return _placed_on(capabilities, _pattern(mesh))


@functools.lru_cache(maxsize=1024)
def _placed_on(capabilities: Capabilities, mesh: MeshSpec) -> frozenset[Feature]:
    """List the features of all placements that a contract leaves on a mesh."""
    # One tensor dim is enough: further dims add placements, and no features.
    codes = [REPLICATE, shard(0), strided_shard(0), PARTIAL]
    codes += [ABSENT] if mesh.axis_names else []  # others have no sub-meshes
    placed = itertools.product(codes, repeat=len(mesh.shape))
    return frozenset(
        feature
        for placements in (None, *filter(is_legal, placed))
        if _has_placements(capabilities, mesh, placements)
        for feature in _features_of(capabilities, mesh, placements)
    )


@functools.lru_cache(maxsize=8192)
def _has_placements(
    capabilities: Capabilities, mesh: MeshSpec, placements: Placements | None
) -> bool:
    return covers_all(capabilities, _placement_features(mesh, placements))


def _features_of(
    capabilities: Capabilities, mesh: MeshSpec, placements: Placements | None
) -> Iterator[Feature]:
    """Yield the features of placements, and of shapes that they allow in a contract."""
    yield from _placement_features(mesh, placements)
    placed = zip(mesh.shape, placements or (), strict=False)
    cut = [size for size, code in placed if sharded_dim(code) is not None]
    has_strided = any(map(is_strided, placements or ()))
    may_be = {
        "frozen": True,
        "scalar": not cut,
        "uneven or empty shard": max(cut, default=1) > 1 and not has_strided,
    }
    for value, is_possible in may_be.items():
        if is_possible and capabilities.covers("parameters", value):
            yield Feature("parameters", value)


def _placement_features(
    mesh: MeshSpec, placements: Placements | None
) -> Iterator[Feature]:
    return parameter_features(mesh, ParameterSpec("", (1,), placements), _OF_PLACEMENTS)
