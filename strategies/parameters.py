"""Strategies for parameters and lists of them.

Each parameter takes four choices (shape, placements, kind, and whether another one
follows), because Hypothesis deletes only a few consecutive choices at a time: drawn field
by field, superfluous parameters would survive shrinking.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from strategies.placements import placements
from syncverify.scenario import DTYPES, REPLICATE, MeshSpec, ParameterSpec
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities

_BASIC_DTYPES = DTYPES[:3]

# Models have few dtypes, groups and placements. Drawn one by one, parameters rarely agree
# on these, and those that do not agree share no bucket. Equal shapes matter as well:
# swapped buckets of equal size are invisible to every check of shapes.
_SAME_BUCKET = ("dtype", "grad_dtype", "group")
_IN_COMMON = ((), _SAME_BUCKET, (*_SAME_BUCKET, "global_shape", "placements"))


@functools.cache
def shapes(*, scalars: bool = True) -> st.SearchStrategy[tuple[int, ...]]:
    """Generate tensor shapes of up to three dims; shrinks toward few elements.

    Args:
        scalars: Whether there may be no dims.

    Returns:
        A strategy for shapes.
    """
    by_dims: list[list[tuple[int, ...]]] = [
        [()],
        [(1,), (2,), (3,), (4,), (5,), (7,), (17,)],
        list(itertools.product((1, 2, 3, 4, 5, 7), repeat=2)),
        list(itertools.product((1, 2, 3, 5), repeat=3)),
    ]
    by_dims = by_dims if scalars else by_dims[1:]
    # Listed about equally often by number of dims, of which many dims have most shapes.
    most = max(map(len, by_dims))
    listed = [shape for few in by_dims for shape in few * (most // len(few))]
    return st.sampled_from(sorted(listed, key=lambda s: (math.prod(s), len(s), s)))


@functools.lru_cache
@st.composite
def parameters(
    draw: st.DrawFn,
    mesh: MeshSpec,
    *,
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> ParameterSpec:
    """Generate one parameter, its name left to the list that holds it.

    Shrinks toward a trainable, replicated float32 scalar in group 0.

    Args:
        draw: Provided by Hypothesis.
        mesh: Mesh of DTensor parameters.
        capabilities: What the subject promises.

    Returns:
        A parameter with an empty name.
    """
    shape = draw(shapes(scalars=capabilities.scalars))
    placed: tuple[str, ...] | None = (REPLICATE,) * len(mesh.shape)
    if capabilities.tensors == "dtensor":
        placed = draw(placements(mesh, num_dims=len(shape)))
    kinds = _kinds(separate_grad_dtype=capabilities.separate_grad_dtype)
    dtype, grad_dtype, group, requires_grad = draw(kinds)
    return ParameterSpec(
        name="",
        global_shape=shape,
        placements=placed,
        dtype=dtype,
        grad_dtype=grad_dtype,
        requires_grad=requires_grad,
        group=group,
    )


@functools.lru_cache
def parameter_lists(
    mesh: MeshSpec,
    *,
    min_size: int = 1,
    max_size: int = 8,
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> st.SearchStrategy[tuple[ParameterSpec, ...]]:
    """Generate parameters `p0`, `p1`, ... of which at least one is trainable.

    Shrinks toward one parameter.

    Args:
        mesh: Mesh of DTensor parameters.
        min_size: Smallest number of parameters.
        max_size: Largest number of parameters.
        capabilities: What the subject promises.

    Returns:
        A strategy for tuples of `ParameterSpec`.

    Raises:
        InvalidArgument: No such list exists.
    """
    if not 1 <= min_size <= max_size:
        raise InvalidArgument(f"expected 1 <= {min_size=} <= {max_size=}")
    drawn = st.lists(
        parameters(mesh, capabilities=capabilities),
        min_size=min_size,
        max_size=max_size,
    )
    return st.tuples(st.sampled_from(_IN_COMMON), drawn).map(
        lambda pair: _named(_alike(*pair))
    )


@functools.cache
def _kinds(
    *, separate_grad_dtype: bool
) -> st.SearchStrategy[tuple[str, str | None, int, bool]]:
    """Generate (dtype, gradient dtype, group, requires_grad), the plainest first."""
    grad_dtypes = (None, *_BASIC_DTYPES) if separate_grad_dtype else (None,)
    trainable = [
        (dtype, grad_dtype, group, True)
        for group in (0, 1)
        for grad_dtype in grad_dtypes
        for dtype in _BASIC_DTYPES
        if grad_dtype != dtype
    ]
    frozen = [(*kind[:3], False) for kind in trainable]
    # Frozen ones only dilute a scenario.
    return st.sampled_from([*trainable, *trainable, *frozen])


def _alike(
    in_common: tuple[str, ...], specs: list[ParameterSpec]
) -> list[ParameterSpec]:
    """Give all parameters what the first one has."""
    common = {name: getattr(specs[0], name) for name in in_common}
    return [replace(spec, **common) for spec in specs]


def _named(specs: list[ParameterSpec]) -> tuple[ParameterSpec, ...]:
    named = [replace(spec, name=f"p{index}") for index, spec in enumerate(specs)]
    if not any(spec.requires_grad for spec in named):
        named[0] = replace(named[0], requires_grad=True)
    return tuple(named)
