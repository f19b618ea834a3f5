"""Parameters on several meshes over the same ranks: searches meet them, and they shrink away."""

from dataclasses import replace

import pytest

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.contract import EVERYTHING
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.search.smaller_scenarios import simpler_scenarios
from tests.quality.planted import several_meshes as planted


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


@pytest.mark.parametrize(
    ("placements", "on_mesh", "message"),
    [
        (("R",), "transposed", "two axes"),
        (None, "reshaped", "has placements"),
        (("R",), "reshaped", "one placement"),
        (("R",), "other", "on_mesh of 'p'"),
    ],
)
def test_a_parameter_that_does_not_lie_on_its_mesh_is_refused(
    placements: tuple[str, ...] | None, on_mesh: str, message: str
) -> None:
    parameter = ParameterSpec("p", (4,), placements, on_mesh=on_mesh)
    with pytest.raises(ScenarioFormatError, match=message):
        Scenario(planted.LINE, (parameter,), (1,), 64)
