"""A few ranks have all the local shapes that there are, however many ranks there are."""

import pytest
from hypothesis import assume, given

from syncverify.scenario.coordinate_classes import coordinate_classes, representatives
from syncverify.scenario.layout import coordinates, local_shape
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import OWN_MESH, MeshSpec, ParameterSpec
from syncverify.strategies import scenarios


def scenario(shape: tuple[int, ...], *parameters: ParameterSpec) -> Scenario:
    names = ("pp", "dp", "tp")[: len(shape)]
    return Scenario(MeshSpec(shape, names), parameters, (1,), 64)


def cut(drawn: Scenario) -> tuple[MeshSpec, tuple[ParameterSpec, ...]]:
    return drawn.mesh, drawn.parameters


REPLICATED = ParameterSpec("r", (5,), ("R",))


@pytest.mark.parametrize(
    ("numel", "parts"),
    [
        (64, [range(8)]),
        (61, [range(7), range(7, 8)]),  # the last holds 5
        (9, [range(4), range(4, 5), range(5, 8)]),  # 2 each, then 1, then none
        (3, [range(3), range(3, 8)]),
        (0, [range(8)]),
    ],
)
def test_an_axis_is_cut_where_local_parts_change(
    numel: int, parts: list[range]
) -> None:
    sharded = ParameterSpec("s", (numel,), ("S0",))
    assert [*coordinate_classes(*cut(scenario((8,), sharded)), 0)] == parts


def test_a_dim_may_be_cut_by_several_axes() -> None:
    """Five over two is 3 and 2; over two again 2 and 1, and 1 and 1."""
    twice = scenario((2, 2), ParameterSpec("a", (5,), ("S0", "S0")))
    assert coordinate_classes(*cut(twice), 0) == (range(1), range(1, 2))
    assert coordinate_classes(*cut(twice), 1) == (range(1), range(1, 2))


@pytest.mark.long
@given(scenarios(max_ranks=24))
def test_ranks_of_a_class_hold_parts_of_equal_shape(drawn: Scenario) -> None:
    mesh = drawn.mesh
    # No smaller mesh stands for several, so all their ranks play.
    assume(all(spec.on_mesh == OWN_MESH for spec in drawn.parameters))
    parts = [coordinate_classes(*cut(drawn), axis) for axis in range(len(mesh.shape))]
    shapes: dict[tuple[range, ...], set[object]] = {}
    for rank in range(mesh.num_ranks):
        box = tuple(
            next(part for part in parts[axis] if index in part)
            for axis, index in enumerate(coordinates(mesh, rank))
        )
        held = tuple(local_shape(mesh, spec, rank) for spec in drawn.parameters)
        shapes.setdefault(box, set()).add(held)
    assert {len(of_one_class) for of_one_class in shapes.values()} == {1}
    chosen = {
        tuple(local_shape(mesh, spec, rank) for spec in drawn.parameters)
        for rank in representatives(*cut(drawn))
    }
    assert chosen == {held for of_one_class in shapes.values() for held in of_one_class}


@pytest.mark.parametrize("size", [1, 2, 3, 65_536])
def test_ends_and_both_parities_play(size: int) -> None:
    chosen = representatives(*cut(scenario((size,), REPLICATED)))
    assert (chosen[0], chosen[-1]) == (0, size - 1)
    assert len(chosen) == min(size, 3)
    assert {rank % 2 for rank in chosen} == ({0, 1} if size > 1 else {0})


def test_representatives_form_a_grid() -> None:
    uneven = scenario((64, 1024), ParameterSpec("a", (1500,), ("R", "S0")))
    assert coordinate_classes(*cut(uneven), 1) == (range(750), range(750, 1024))
    rows, columns = (0, 31, 63), (0, 375, 749, 750, 887, 1023)
    assert representatives(*cut(uneven)) == tuple(
        1024 * row + column for row in rows for column in columns
    )
