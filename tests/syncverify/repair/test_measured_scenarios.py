"""Scenarios that show costs have several ranks, buckets and steps, and keep the contract."""

import itertools
from typing import Literal

import pytest

from syncverify.repair.measured_scenarios import measured_scenarios
from syncverify.repair.needs import Needs
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

LONE = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("w", (), ("R",)),), (1,), 1 << 20
)


@pytest.mark.parametrize(
    "capabilities",
    [
        Capabilities(),
        Capabilities(varying_accumulations=True),
        Capabilities(tensors="local"),
    ],
)
def test_measured_scenarios_have_several_of_everything(
    capabilities: Capabilities,
) -> None:
    found = [*measured_scenarios(LONE, capabilities)]
    assert not any(features_outside(each, capabilities) for each in found)
    assert {each.mesh.num_ranks for each in found} == {2, 3, 4}
    assert max(each.num_steps for each in found) > 1
    assert max(max(each.accumulations) for each in found) > 1
    needs = [Needs.of(each) for each in found]
    assert any(each.of_buckets < each.of_parameters for each in needs)
    assert any(each.early_bytes for each in needs)
    # One is so large that a copy of all gradients is no noise of its costs.
    assert max(each.num_bytes for each in needs) > 10_000


@pytest.mark.parametrize("tensors", ["dtensor", "local"])
def test_some_measured_scenarios_have_differing_parameters_groups_and_steps(
    tensors: Literal["dtensor", "local"],
) -> None:
    capabilities = Capabilities(tensors=tensors, varying_accumulations=True)
    found = [*measured_scenarios(LONE, capabilities)]
    varied = [each for each in found if len({p.group for p in each.parameters}) > 1]
    assert varied
    for each in varied:
        shapes = {parameter.global_shape for parameter in each.parameters}
        assert len(shapes) == len(each.parameters)
        assert any(len({*shape}) > 1 and 1 not in shape for shape in shapes)
        pairs = [*itertools.pairwise(each.accumulations)]
        assert {(a > b) - (a < b) for a, b in pairs} == {-1, 0, 1}


def test_one_measured_scenario_has_the_parameters_of_the_violation() -> None:
    found = [*measured_scenarios(LONE, Capabilities())]
    assert [each for each in found if each.parameters[0].global_shape == ()]
