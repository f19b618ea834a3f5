"""Strategies for parameters and lists of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from strategies.placements import placements
from syncverify.scenario import DTYPES, REPLICATE, MeshSpec, ParameterSpec
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities

# Equal shapes matter as much as odd ones: swapped buckets of equal size are invisible to
# every check of shapes. So most shapes come from a short list.
_COMMON_SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (1,),
    (3,),
    (5,),
    (2, 3),
    (3, 3),
    (17,),
    (4, 8),
)


def shapes() -> st.SearchStrategy[tuple[int, ...]]:
    """Generate tensor shapes from scalars to three dims; shrinks toward scalars."""
    any_shape = st.lists(st.integers(1, 7), max_size=3).map(tuple)
    return st.sampled_from(_COMMON_SHAPES) | any_shape


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
    shape = draw(shapes())
    if capabilities.tensors == "dtensor":
        placed = draw(placements(mesh, num_dims=len(shape)) | st.none())
    else:  # a subject for plain tensors reduces all of them over all ranks
        placed = (REPLICATE,) * len(mesh.shape)
    grad_dtypes: st.SearchStrategy[str | None] = st.none()
    dtype = draw(st.sampled_from(DTYPES))
    if capabilities.separate_grad_dtype:
        grad_dtypes = st.none() | st.sampled_from(
            [other for other in DTYPES if other != dtype]
        )
    return ParameterSpec(
        name="",
        global_shape=shape,
        placements=placed,
        dtype=dtype,
        grad_dtype=draw(grad_dtypes),
        requires_grad=not draw(st.booleans()) or not draw(st.booleans()),
        group=draw(st.integers(0, 1)),
    )


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
    return drawn.map(_named)


def _named(specs: list[ParameterSpec]) -> tuple[ParameterSpec, ...]:
    named = [replace(spec, name=f"p{index}") for index, spec in enumerate(specs)]
    if not any(spec.requires_grad for spec in named):
        named[0] = replace(named[0], requires_grad=True)
    return tuple(named)
