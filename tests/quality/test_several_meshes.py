"""Parameters on several meshes over the same ranks: defects show through them alone."""

from dataclasses import replace

import pytest

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.other_meshes import on_mesh, other_mesh
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.scenario.token import Reproducer, decode, encode
from syncverify.search.needed_features import _with_one_feature_less
from syncverify.search.simpler_scenarios import simpler_scenarios
from tests.programs import identities
from tests.quality.planted import several_meshes as planted
from tests.quality.planted.first_drawn import first_drawn

LINE = MeshSpec((4,), ("dp",))
GRID = MeshSpec((2, 2), ("dp", "tp"))
CUBE = MeshSpec((2, 1, 2), ("dp", "tp", "ep"))


def scenario(mesh: MeshSpec, word: str, codes: str = "", **fields: object) -> Scenario:
    """Make a scenario with one parameter on its mesh and one on another mesh."""
    placements = tuple(codes.split()) or ("R",) * len(mesh.shape)
    dense = ParameterSpec("dense", (4,), placements)
    expert = on_mesh(mesh, replace(dense, name="expert"), word)
    changed = replace(expert, **fields)  # type: ignore[arg-type]
    return Scenario(mesh, (dense, changed), (2, 1), 1024)


TRANSPOSED = scenario(GRID, "transposed", "R S0")
RESHAPED = scenario(GRID, "reshaped", "R S0")
SPLIT = scenario(LINE, "reshaped")
SUB_MESHES = Scenario(
    GRID,
    (ParameterSpec("a", (4,), ("R", "-")), ParameterSpec("b", (4,), ("-", "R"))),
    (1,),
    1024,
)
SLICE = replace(
    SPLIT,
    parameters=(
        SPLIT.parameters[0],
        replace(SPLIT.parameters[1], placements=("R", "-")),
    ),
)


@pytest.mark.parametrize(
    ("defect", "shown_by"),
    [
        (planted.BucketsWithoutMesh, TRANSPOSED),
        (planted.BucketsWithoutMesh, SUB_MESHES),
        (planted.BucketsWithoutMesh, SLICE),
        (planted.BucketsByShape, TRANSPOSED),
        (planted.GroupsByIndex, TRANSPOSED),
        (planted.GroupsByIndex, RESHAPED),
        (planted.GroupsByIndex, SPLIT),
        (planted.GroupsByName, RESHAPED),
        (planted.GroupsByName, SPLIT),
    ],
)
def test_a_mesh_that_is_mistaken_for_another_one_is_found(
    defect: type, shown_by: Scenario
) -> None:
    assert identities(defect, shown_by)
    apart = replace(shown_by.parameters[1], group=1)
    alone = replace(shown_by, parameters=(shown_by.parameters[0],))
    assert identities(defect, alone) == set()
    assert (
        identities(
            planted.BucketsByMesh,
            replace(shown_by, parameters=(shown_by.parameters[0], apart)),
        )
        == set()
    )


SHOWN = [
    TRANSPOSED,
    RESHAPED,
    SPLIT,
    SLICE,
    scenario(CUBE, "transposed", "R S0 R"),
    scenario(replace(GRID, axis_names=(), order="permuted"), "transposed", "R S0"),
    scenario(replace(GRID, order="permuted"), "reshaped", "S0 R"),
    scenario(GRID, "transposed", "P R"),
    scenario(GRID, "transposed", "R S0", group=1),
]


@pytest.mark.parametrize("subject", [planted.BucketsByMesh, "synchronizer"])
def test_right_programs_of_several_meshes_are_silent(subject: object) -> None:
    for each in SHOWN:
        partial = any("P" in (s.placements or ()) for s in each.parameters)
        if subject == "synchronizer" or not partial:
            assert identities(subject, each) == set()


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
    "larger", [TRANSPOSED, RESHAPED, SPLIT, scenario(CUBE, "transposed", "R S0 R")]
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


@pytest.mark.parametrize("shown", [TRANSPOSED, RESHAPED, SPLIT])
def test_a_violation_without_need_of_a_second_mesh_loses_it(shown: Scenario) -> None:
    plain = [*_with_one_feature_less(shown)]
    assert any(each.parameters[1].on_mesh == "own" for each in plain)


def test_a_token_keeps_the_meshes_of_parameters() -> None:
    reproducer = Reproducer("replicas_agree", "replicas_differ", RESHAPED)
    assert decode(encode(reproducer)) == reproducer
    assert Scenario.from_json(TRANSPOSED.to_json()) == TRANSPOSED


@pytest.mark.parametrize(
    ("mesh", "word", "expected"),
    [
        (GRID, "transposed", MeshSpec((2, 2), ("tp", "dp"), "column_major")),
        (GRID, "reshaped", MeshSpec((4,), ("dp",))),
        (LINE, "reshaped", MeshSpec((2, 2), ("dp", "ep"))),
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
        (LINE, ParameterSpec("p", (4,), ("R",), on_mesh="transposed"), "two axes"),
        (LINE, ParameterSpec("p", (4,), None, on_mesh="reshaped"), "has placements"),
        (LINE, ParameterSpec("p", (4,), ("R",), on_mesh="reshaped"), "one placement"),
        (LINE, ParameterSpec("p", (4,), ("R",), on_mesh="other"), "on_mesh of 'p'"),
    ],
)
def test_a_parameter_that_does_not_lie_on_its_mesh_is_refused(
    mesh: MeshSpec, parameter: ParameterSpec, message: str
) -> None:
    with pytest.raises(ScenarioFormatError, match=message):
        Scenario(mesh, (parameter,), (1,), 64)
