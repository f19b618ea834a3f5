"""Features of plain training steps: the mesh, and each parameter on it.

A feature is a topic and a value, spelled `topic=value` in a contract. Features beyond plain
steps are in `features.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.specs import (
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    sharded_dim,
)

Feature = tuple[str, str]

MAX_AXES: Final = 3
MAX_STEPS: Final = 3
MAX_ACCUMULATIONS: Final = 4
# Least numbers that count as many. Scenarios are small but for one large number now and then:
# widths of masks, chunks with a rest, rings that turn over and counters that overflow need it.
MANY: Final[Mapping[str, int]] = {
    "parameters": 32,
    "elements": 1024,
    "steps": 6,
    "micro-batches": 8,
}


def over(num_axes: int) -> str:
    """Name a reduction over a number of mesh axes."""
    return f"over {num_axes} {'axis' if num_axes == 1 else 'axes'}"


def _numbers(most: int) -> tuple[str, ...]:
    return tuple(map(str, range(1, most + 1)))


# Values by topic. `ranks` is a topic too; each number is a value of it.
PLAIN_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "mesh": ("1 axis", "2 axes", "axis of size 1"),
    "parameters": (
        *("replicated", "sharded", "uneven or empty shard", "ordinary"),
        *("frozen", "scalar"),
    ),
    "dtype": ("float32", "bfloat16", "float16", "several"),
    "reduction": ("none", *map(over, range(1, MAX_AXES + 1))),
    "accumulations": (*_numbers(MAX_ACCUMULATIONS), "varying"),
    "steps": _numbers(MAX_STEPS),
    "buckets": ("cap splits", "cap does not split", "2 groups", "3 groups"),
    "gradient": ("inf", "nan"),
    "size": tuple(f"many {noun}" for noun in MANY),
}
# Values that are gone with a smaller number of their kind.
GONE_WITH: Final[Mapping[str, str]] = {
    f"steps={MAX_STEPS}": "size=many steps",
    f"accumulations={MAX_ACCUMULATIONS}": "size=many micro-batches",
    "buckets=2 groups": "buckets=3 groups",
}


def is_plain(topic: str, value: str) -> bool:
    """Tell whether a feature occurs in plain training steps."""
    return topic == "ranks" or value in PLAIN_VALUES.get(topic, ())


def mesh_features(mesh: MeshSpec) -> Iterator[Feature]:
    """Yield the features of a mesh; `features.py` has three axes and missing names."""
    yield "ranks", str(mesh.num_ranks)
    if len(mesh.shape) < 3:
        yield "mesh", "1 axis" if len(mesh.shape) == 1 else "2 axes"
    if 1 in mesh.shape:
        yield "mesh", "axis of size 1"


def placement_features(mesh: MeshSpec, spec: ParameterSpec) -> Iterator[Feature]:
    """Yield the features of a parameter that follow from its placements alone."""
    num_axes = len(reduce_axes(mesh, spec))
    yield "reduction", over(num_axes) if num_axes else "none"
    if spec.placements is None:
        yield "parameters", "ordinary"
    elif set(spec.placements) == {REPLICATE}:
        yield "parameters", "replicated"
    elif any(sharded_dim(code) is not None for code in spec.placements):
        yield "parameters", "sharded"


def is_large(spec: ParameterSpec) -> bool:
    """Tell whether a parameter has many elements on all ranks together."""
    return math.prod(spec.global_shape) >= MANY["elements"]


def dtype_features(spec: ParameterSpec) -> Iterator[Feature]:
    """Yield the dtypes of a parameter and its gradient; `features.py` has the rare ones."""
    for dtype in {spec.dtype, spec.effective_grad_dtype} - {"float64"}:
        yield "dtype", dtype
