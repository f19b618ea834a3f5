"""Parameters on several meshes over the same ranks: searches meet them, and they shrink away."""

from dataclasses import replace

import pytest

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.other_meshes import other_mesh
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.needed_features import _with_one_feature_less
from syncverify.search.simpler_scenarios import simpler_scenarios
from tests.programs import identities
from tests.quality.planted import several_meshes as planted
from tests.quality.planted.first_drawn import first_drawn


@pytest.mark.parametrize(
    "defect",
    [
        planted.BucketsWithoutMesh,
        planted.BucketsByShape,
        planted.GroupsByIndex,
        planted.GroupsByName,
    ],
)
@pytest.mark.long
def test_a_search_meets_several_meshes(defect: type) -> None:
    def is_wrong(drawn: Scenario) -> bool:
        has_meshes = any(spec.on_mesh != "own" for spec in drawn.parameters)
        return has_meshes and identities(defect, drawn) != set()

    own = Capabilities(varying_accumulations=True, features=frozenset({"on_mesh"}))
    assert first_drawn(is_wrong, own, 400) is not None


@pytest.mark.parametrize(
    "larger",
    [
        planted.TRANSPOSED,
        planted.RESHAPED,
        planted.SPLIT,
        planted.scenario(planted.CUBE, "transposed", "R S0 R"),
    ],
)
def test_axes_ranks_and_the_second_mesh_shrink_away(larger: Scenario) -> None:
    capabilities = replace(EVERYTHING, varying_accumulations=True)
    smaller = [*simpler_scenarios(larger, capabilities)]
    own = [each.parameters[-1].on_mesh == "own" for each in smaller]
    assert {len(each.parameters) for each in smaller} == {1, 2}
    assert min(each.mesh.num_ranks for each in smaller) < larger.mesh.num_ranks
    assert any(own)
    fewer = {len(each.mesh.shape) for each in smaller}
    assert min(fewer) < len(larger.mesh.shape) or len(larger.mesh.shape) == 1


@pytest.mark.parametrize("shown", [planted.TRANSPOSED, planted.RESHAPED, planted.SPLIT])
def test_a_violation_without_need_of_a_second_mesh_loses_it(shown: Scenario) -> None:
    plain = [*_with_one_feature_less(shown)]
    assert any(each.parameters[1].on_mesh == "own" for each in plain)


def test_json_keeps_the_meshes_of_parameters() -> None:
    assert Scenario.from_json(planted.TRANSPOSED.to_json()) == planted.TRANSPOSED


@pytest.mark.parametrize(
    ("mesh", "word", "expected"),
    [
        (planted.GRID, "transposed", MeshSpec((2, 2), ("tp", "dp"), "column_major")),
        (planted.GRID, "reshaped", MeshSpec((4,), ("dp",))),
        (planted.LINE, "reshaped", MeshSpec((2, 2), ("dp", "ep"))),
        (MeshSpec((3,), ("ep",)), "reshaped", MeshSpec((3, 1), ("ep", "dp"))),
        (MeshSpec((1,), ()), "reshaped", MeshSpec((1, 1), ())),
    ],
)
def test_the_mesh_of_a_scenario_makes_the_other_meshes(
    mesh: MeshSpec, word: str, expected: MeshSpec
) -> None:
    assert other_mesh(mesh, word) == expected


@pytest.mark.parametrize(
    ("mesh", "parameter", "message"),
    [
        (
            planted.LINE,
            ParameterSpec("p", (4,), ("R",), on_mesh="transposed"),
            "two axes",
        ),
        (
            planted.LINE,
            ParameterSpec("p", (4,), None, on_mesh="reshaped"),
            "has placements",
        ),
        (
            planted.LINE,
            ParameterSpec("p", (4,), ("R",), on_mesh="reshaped"),
            "one placement",
        ),
        (
            planted.LINE,
            ParameterSpec("p", (4,), ("R",), on_mesh="other"),
            "on_mesh of 'p'",
        ),
    ],
)
def test_a_parameter_that_does_not_lie_on_its_mesh_is_refused(
    mesh: MeshSpec, parameter: ParameterSpec, message: str
) -> None:
    with pytest.raises(ScenarioFormatError, match=message):
        Scenario(mesh, (parameter,), (1,), 64)
