"""The harness's own meaning of placements equals torch's."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from syncverify.scenario.layout import (
    axis_name,
    contributing_ranks,
    coordinates,
    local_shape,
    reduce_axes,
)
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies import meshes, placements

GRID = MeshSpec((2, 3), ("dp", "tp"))


def test_an_axis_without_a_name_is_called_by_its_index() -> None:
    assert axis_name(GRID, 1) == "tp"
    assert axis_name(MeshSpec((2, 3), ()), 1) == 1


@st.composite
def placed(draw: st.DrawFn) -> tuple[MeshSpec, ParameterSpec]:
    """A mesh of up to 12 ranks and a parameter with sizes from 0."""
    mesh = draw(meshes(max_ranks=12))
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    return mesh, ParameterSpec("p", shape, draw(placements(mesh, num_dims=len(shape))))


def torch_local_shape(
    mesh: MeshSpec, spec: ParameterSpec, rank: int
) -> tuple[int, ...]:
    as_torch: list[Placement] = [
        Replicate() if code == "R" else Shard(int(code[1:]))
        for code in spec.placements or ()  # a plain tensor is whole on every rank
    ]
    shape, _ = _compute_local_shape_and_global_offset(
        spec.global_shape, mesh.shape, list(coordinates(mesh, rank)), as_torch
    )
    return tuple(shape)


@pytest.mark.slow
@given(placed())
@example((MeshSpec((2, 2), ("dp", "tp")), ParameterSpec("p", (5,), ("S0", "S0"))))
@example((MeshSpec((4,), ("dp",)), ParameterSpec("p", (5,), ("S0",))))
@example((MeshSpec((4,), ("dp",)), ParameterSpec("p", (0,), ("S0",))))
def test_local_shape_is_torchs(drawn: tuple[MeshSpec, ParameterSpec]) -> None:
    mesh, spec = drawn
    for rank in range(mesh.num_ranks):
        assert local_shape(mesh, spec, rank) == torch_local_shape(mesh, spec, rank)


@given(placed())
def test_contributing_ranks_partition_the_world(
    drawn: tuple[MeshSpec, ParameterSpec],
) -> None:
    """Each rank is in its own set, and members of a set have the same one."""
    mesh, spec = drawn
    sizes = [mesh.shape[axis] for axis in reduce_axes(mesh, spec)]
    for rank in range(mesh.num_ranks):
        members = contributing_ranks(mesh, spec, rank)
        assert rank in members
        assert list(members) == sorted(set(members))
        assert len(members) == math.prod(sizes)
        for other in members:
            assert contributing_ranks(mesh, spec, other) == members
            assert local_shape(mesh, spec, other) == local_shape(mesh, spec, rank)


@pytest.mark.parametrize(
    ("codes", "axes", "members"),
    [
        (("R", "R"), (0, 1), (0, 1, 2, 3, 4, 5)),
        (("R", "S0"), (0,), (1, 4)),
        (("S0", "R"), (1,), (3, 4, 5)),
        (("S0", "S0"), (), (4,)),
        (None, (), (4,)),
    ],
)
def test_contributing_ranks_of_rank_4(
    codes: tuple[str, ...] | None, axes: tuple[int, ...], members: tuple[int, ...]
) -> None:
    spec = ParameterSpec("p", (6,), codes)
    assert reduce_axes(GRID, spec) == axes
    assert contributing_ranks(GRID, spec, 4) == members
