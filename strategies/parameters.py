"""Strategies for parameters and lists of them.

Each parameter takes few choices (shape, placements, kind, words, and whether another one
follows), because Hypothesis deletes only a few consecutive choices at a time: drawn field
by field, superfluous parameters would survive shrinking.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from strategies.parameter_words import parameter_words
from strategies.placements import placements
from strategies.rarities import with_rare
from strategies.shapes import shapes
from syncverify.scenario import (
    DTYPES,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    num_pieces,
    sharded_dim,
)
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities

_BASIC_DTYPES = DTYPES[:3]
_FLOAT64 = DTYPES[3]
_ONE_FLOAT64_IN = 8

# Models have few dtypes, groups and placements. Drawn one by one, parameters rarely agree
# on these, and those that do not agree share no bucket. Equal shapes matter as well:
# swapped buckets of equal size are invisible to every check of shapes.
_SAME_BUCKET = ("dtype", "grad_dtype", "group")
_SAME_SIZE = ("global_shape", "placements", "memory_format")
_IN_COMMON = ((), _SAME_BUCKET, (*_SAME_BUCKET, *_SAME_SIZE))


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
    shape = draw(
        shapes(
            scalars=capabilities.scalars,
            four_dims=capabilities.covers("shape", "4 dims"),
            empty=capabilities.covers("shape", "empty"),
        )
    )
    placed: tuple[str, ...] | None = (REPLICATE,) * len(mesh.shape)
    if capabilities.tensors == "dtensor":
        placed = draw(
            placements(
                mesh,
                num_dims=len(shape),
                sub_meshes=capabilities.covers("placement", "sub_mesh"),
                strided=capabilities.covers("placement", "strided"),
                partial=capabilities.covers("placement", "partial"),
            )
        )
    kinds = _kinds(
        separate_grad_dtype=capabilities.separate_grad_dtype,
        float64=capabilities.covers("dtype", _FLOAT64),
    )
    dtype, grad_dtype, group, requires_grad = draw(kinds)
    said = parameter_words(num_dims=len(shape), capabilities=capabilities)
    return ParameterSpec(
        name="",
        global_shape=_even(shape, placed, mesh),
        placements=placed,
        dtype=dtype,
        grad_dtype=grad_dtype,
        requires_grad=requires_grad,
        group=group,
        **({} if said is None else dict(draw(said))),
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


def _even(
    shape: tuple[int, ...], placed: tuple[str, ...] | None, mesh: MeshSpec
) -> tuple[int, ...]:
    """Round dims with strided shards up to what divides without a rest."""
    sizes = list(shape)
    for code in placed or ():
        dim = sharded_dim(code)
        if dim is not None and code.startswith("_"):
            pieces = num_pieces(mesh, placed or (), dim)
            sizes[dim] = -(-shape[dim] // pieces) * pieces
    return tuple(sizes)


@functools.cache
def _kinds(
    *, separate_grad_dtype: bool, float64: bool
) -> st.SearchStrategy[tuple[str, str | None, int, bool]]:
    """Generate (dtype, gradient dtype, group, requires_grad), the plainest first."""
    dtypes = DTYPES if float64 else _BASIC_DTYPES
    grad_dtypes = (None, *dtypes) if separate_grad_dtype else (None,)
    trainable = [
        (dtype, grad_dtype, group, True)
        for group in (0, 1)
        for grad_dtype in grad_dtypes
        for dtype in dtypes
        if grad_dtype != dtype
    ]
    usual = [kind for kind in trainable if _FLOAT64 not in kind]
    wide = [kind for kind in trainable if _FLOAT64 in kind]
    frozen = [(*kind[:3], False) for kind in usual]
    # Frozen ones only dilute a scenario.
    return with_rare([*usual, *usual, *frozen], wide, one_in=_ONE_FLOAT64_IN)


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
