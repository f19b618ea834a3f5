"""Strategies for parameters and lists of them.

A parameter takes few choices: shape, placements, kind, fields, and whether another one
follows. Hypothesis deletes only a few consecutive choices at a time, so superfluous
parameters would survive shrinking if every field took a choice.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from strategies.parameter_fields import parameter_fields
from strategies.placements import placements
from strategies.shapes import shapes
from strategies.weights import with_rare
from syncverify.scenario.contract import DEFAULT_CAPABILITIES, Capabilities
from syncverify.scenario.specs import (
    DTYPES,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    num_pieces,
    sharded_dim,
)

_BASIC_DTYPES = DTYPES[:3]
_FLOAT64 = DTYPES[3]
_ONE_FLOAT64_IN = 8

# Parameters share a bucket only if these fields are equal, which independent draws rarely
# are. Equal shapes matter as well: a check of shapes cannot see swapped buckets of equal
# size.
_SAME_BUCKET = ("dtype", "grad_dtype", "group")
_SAME_SIZE = ("global_shape", "placements", "memory_format")
_COMMON_FIELDS = ((), _SAME_BUCKET, (*_SAME_BUCKET, *_SAME_SIZE))


@functools.lru_cache
@st.composite
def parameters(
    draw: st.DrawFn,
    mesh: MeshSpec,
    *,
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> ParameterSpec:
    """Generate one parameter with an empty name; the list that holds it names it.

    Shrinks toward a trainable, replicated float32 scalar in group 0.

    Args:
        draw: Provided by Hypothesis.
        mesh: Mesh of DTensor parameters.
        capabilities: Contract of the subject.

    Returns:
        A parameter.
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
    fields = parameter_fields(num_dims=len(shape), capabilities=capabilities)
    return ParameterSpec(
        name="",
        global_shape=_even(shape, placed, mesh),
        placements=placed,
        dtype=dtype,
        grad_dtype=grad_dtype,
        requires_grad=requires_grad,
        group=group,
        **({} if fields is None else dict(draw(fields))),
    )


@functools.lru_cache
def parameter_lists(
    mesh: MeshSpec,
    *,
    min_size: int = 1,
    max_size: int = 8,
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> st.SearchStrategy[tuple[ParameterSpec, ...]]:
    """Generate parameters `p0`, `p1`, ..., at least one of them trainable.

    Shrinks toward one parameter.

    Args:
        mesh: Mesh of DTensor parameters.
        min_size: Smallest number of parameters.
        max_size: Largest number of parameters.
        capabilities: Contract of the subject.

    Returns:
        A strategy for tuples of `ParameterSpec`.

    Raises:
        InvalidArgument: Not `1 <= min_size <= max_size`.
    """
    if not 1 <= min_size <= max_size:
        raise InvalidArgument(f"expected 1 <= {min_size=} <= {max_size=}")
    drawn = st.lists(
        parameters(mesh, capabilities=capabilities),
        min_size=min_size,
        max_size=max_size,
    )
    return st.tuples(st.sampled_from(_COMMON_FIELDS), drawn).map(
        lambda pair: _named(_with_common_fields(*pair))
    )


def _even(
    shape: tuple[int, ...], placed: tuple[str, ...] | None, mesh: MeshSpec
) -> tuple[int, ...]:
    """Round dims with strided shards up to a multiple of their number of pieces."""
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
    """Generate (dtype, gradient dtype, group, requires_grad); shrinks toward the plainest."""
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
    # Frozen parameters are reduced by no collective: they get half the weight.
    return with_rare([*usual, *usual, *frozen], wide, one_in=_ONE_FLOAT64_IN)


def _with_common_fields(
    names: tuple[str, ...], specs: list[ParameterSpec]
) -> list[ParameterSpec]:
    """Set the named fields of all parameters to the values of the first one."""
    common = {name: getattr(specs[0], name) for name in names}
    return [replace(spec, **common) for spec in specs]


def _named(specs: list[ParameterSpec]) -> tuple[ParameterSpec, ...]:
    named = [replace(spec, name=f"p{index}") for index, spec in enumerate(specs)]
    if not any(spec.requires_grad for spec in named):
        named[0] = replace(named[0], requires_grad=True)
    return tuple(named)
