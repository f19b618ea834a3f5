"""Strategies for parameters and lists of them.

A parameter takes few choices: shape, placements, kind, fields, and whether another one
follows. Hypothesis deletes only a few consecutive choices at a time, so superfluous
parameters would survive shrinking if every field took a choice.
"""

import functools
import itertools
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.contract_meshes import (
    covers_all,
    dtypes,
    has_placements,
    leaves_scalars,
)
from syncverify.scenario.feature_table import TABLE, WORDS
from syncverify.scenario.specs import (
    DTYPES,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    Placements,
    num_pieces,
    shard,
    sharded_dim,
)
from syncverify.scenario.words import allowed_words
from syncverify.strategies.placements import placements
from syncverify.strategies.shapes import shapes
from syncverify.strategies.weights import with_rare

# Fields beyond shape, placements and dtypes, each with its value.
_Fields = tuple[tuple[str, Any], ...]
_GRAD_DTYPES = (None, *DTYPES)
_FLOAT64 = "float64"

# Parameters share a bucket only if these fields are equal, which independent draws rarely
# are. Equal shapes matter as well: a check of shapes cannot see swapped buckets of equal
# size.
_DTYPES = ("dtype", "grad_dtype")
_SAME_BUCKET = (*_DTYPES, "group")
_SAME_SIZE = ("global_shape", "placements", "memory_format")
_COMMON_FIELDS = ((), _SAME_BUCKET, (*_SAME_BUCKET, *_SAME_SIZE))
# Stands for fields of one bucket, and placements that are reduced over equally many, but different
# axes. A subject whose buckets only count axes would mix them.
_CROSSED = ("crossed",)
_USUAL_FOR_ONE_CROSSED = 2


@functools.lru_cache
@st.composite
def parameters(
    draw: st.DrawFn, mesh: MeshSpec, *, capabilities: Capabilities = EVERYTHING
) -> ParameterSpec:
    """Generate one parameter with an empty name; the list that holds it names it.

    Shrinks toward a trainable, replicated float32 scalar in group 0.
    """
    # No cap splits a bucket of empty gradients.
    for_empty = [("shape", "empty"), ("buckets", "cap does not split")]
    drawn_shapes = shapes(
        scalars=leaves_scalars(capabilities, mesh),
        four_dims=capabilities.covers("shape", "4 dims"),
        empty=covers_all(capabilities, for_empty),
    )
    shape = draw(drawn_shapes)
    placed: Placements | None = (REPLICATE,) * len(mesh.shape)
    if capabilities.tensors == "dtensor":
        drawn = placements(
            mesh,
            num_dims=len(shape),
            sub_meshes=True,
            strided=True,
            partial=True,
            capabilities=capabilities,
        )
        placed = draw(drawn)
    dtype, grad_dtype, group, requires_grad = draw(_kinds(capabilities))
    fields: dict[str, Any] = dict(draw(_fields(len(shape), capabilities)))
    return ParameterSpec(
        name="",
        global_shape=_even(shape, placed, mesh, capabilities),
        placements=placed,
        dtype=dtype,
        grad_dtype=grad_dtype,
        requires_grad=requires_grad,
        group=group,
        **fields,
    )


@functools.lru_cache
def parameter_lists(
    mesh: MeshSpec,
    *,
    min_size: int = 1,
    max_size: int = 8,
    capabilities: Capabilities = EVERYTHING,
) -> st.SearchStrategy[tuple[ParameterSpec, ...]]:
    """Generate parameters `p0`, `p1`, ..., at least one of them trainable.

    Shrinks toward one parameter.

    Raises:
        InvalidArgument: Not `1 <= min_size <= max_size`.
    """
    if not 1 <= min_size <= max_size:
        raise InvalidArgument(f"expected 1 <= {min_size=} <= {max_size=}")
    one = parameters(mesh, capabilities=capabilities)
    drawn = st.lists(one, min_size=min_size, max_size=max_size)
    common_fields: tuple[tuple[str, ...], ...] = _COMMON_FIELDS
    if not capabilities.covers("dtype", "several"):
        common_fields = tuple((*_DTYPES, *fields) for fields in _COMMON_FIELDS)
    is_left = functools.partial(has_placements, capabilities, mesh)
    crossed = _crossed_placements(mesh) if capabilities.tensors == "dtensor" else []
    if len(crossed) > 1 and all(map(is_left, crossed)):
        common_fields = (*common_fields * _USUAL_FOR_ONE_CROSSED, _CROSSED)
    return st.tuples(st.sampled_from(common_fields), drawn).map(
        lambda pair: _named(_related(*pair, mesh, capabilities))
    )


def _crossed_placements(mesh: MeshSpec) -> list[tuple[str, ...]]:
    """List the placements with one shard, of the first dim, on an axis of several ranks."""
    axes = range(len(mesh.shape))
    return [
        tuple(shard(0) if axis == cut else REPLICATE for axis in axes)
        for cut in axes
        if mesh.shape[cut] > 1
    ]


def _related(
    names: tuple[str, ...],
    specs: list[ParameterSpec],
    mesh: MeshSpec,
    capabilities: Capabilities,
) -> list[ParameterSpec]:
    """Let parameters have fields in common; see `_COMMON_FIELDS` and `_CROSSED`."""
    if names is not _CROSSED:
        return _with_common_fields(names, specs)
    alike = _with_common_fields((*_SAME_BUCKET, "memory_format"), specs)
    crossed = itertools.cycle(_crossed_placements(mesh))
    shape = specs[0].global_shape or (3,)
    for place, (spec, placed) in enumerate(zip(alike, crossed, strict=False)):
        even = _even(shape, placed, mesh, capabilities)
        alike[place] = replace(spec, placements=placed, global_shape=even)
    return alike


def _even(
    shape: tuple[int, ...],
    placed: Placements | None,
    mesh: MeshSpec,
    capabilities: Capabilities,
) -> tuple[int, ...]:
    """Round dims up to a multiple of their number of pieces, where shards have to be even."""
    # Strided shards always have to be, others where the contract leaves out uneven ones.
    may_be_uneven = capabilities.covers("parameters", "uneven or empty shard")
    sizes = list(shape)
    for code in placed or ():
        dim = sharded_dim(code)
        if dim is not None and not (may_be_uneven and code == shard(dim)):
            pieces = num_pieces(mesh, placed or (), dim)
            sizes[dim] = -(-shape[dim] // pieces) * pieces
    return tuple(sizes)


@functools.cache
def _kinds(
    capabilities: Capabilities,
) -> st.SearchStrategy[tuple[str, str | None, int, bool]]:
    """Generate (dtype, gradient dtype, group, requires_grad); shrinks toward the plainest."""
    # By gradient dtype first: kinds without one of their own are the plainest.
    pairs = sorted(dtypes(capabilities), key=lambda pair: _GRAD_DTYPES.index(pair[1]))
    more = [capabilities.covers("buckets", f"{n} groups") for n in (2, 3)]
    groups = range(1 + sum(more))
    trainable = [(*pair, group, True) for group in groups for pair in pairs]
    usual = [kind for kind in trainable if _FLOAT64 not in kind]
    wide = [kind for kind in trainable if _FLOAT64 in kind]
    if not usual:
        usual, wide = wide, []
    may_freeze = capabilities.covers("parameters", "frozen")
    frozen = [(*kind[:3], False) for kind in usual if may_freeze]
    # Frozen parameters are reduced by no collective: they get half the weight.
    return with_rare([*usual, *usual, *frozen], wide, one_in=TABLE["dtype"].one_in)


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


@functools.cache
def _fields(num_dims: int, capabilities: Capabilities) -> st.SearchStrategy[_Fields]:
    """Return a strategy for the fields about lists, and for `memory_format`.

    It draws (field, value) pairs by one choice, if the contract leaves one, and shrinks toward
    none of them.
    """
    kinds = [_listings(capabilities), _memory_formats(num_dims, capabilities)]
    choices = [tuple(itertools.chain(*chosen)) for chosen in itertools.product(*kinds)]
    if len(choices) == 1:
        return st.just(())
    return st.sampled_from(sorted(choices, key=len))


def _listings(capabilities: Capabilities) -> list[_Fields]:
    by_word: dict[str, _Fields] = {
        "twice": (("num_listed", 2),),
        "in two groups": (("also_in_next_group", True),),
    }
    words = allowed_words("listed", capabilities=capabilities)
    num_plain = (TABLE["listed"].one_in - 1) * len(words)
    return [()] * num_plain + ([by_word[word] for word in words] or [()])


def _memory_formats(num_dims: int, capabilities: Capabilities) -> list[_Fields]:
    """List choices, of which the most frequent format decides how many have no format."""
    words = allowed_words("memory_format", capabilities=capabilities)
    rows = [WORDS["memory_format"][word] for word in words]
    rows = [row for row in rows if row.fewest_dims <= num_dims]
    one_in = [row.one_in or TABLE["memory_format"].one_in for row in rows]
    rare: list[_Fields] = [(("memory_format", row.value),) for row in rows]
    return [()] * (min(one_in, default=2) - 1) + rare
