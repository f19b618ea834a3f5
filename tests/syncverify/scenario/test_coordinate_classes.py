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
