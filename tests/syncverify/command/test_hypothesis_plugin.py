"""Strategies that Hypothesis finds by type."""

from dataclasses import dataclass
from importlib.metadata import entry_points

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncverify import MeshSpec, ParameterSpec, Scenario
from syncverify.command.hypothesis_plugin import register


@dataclass
class Case:
    """A user's own type with a scenario in it."""

    scenario: Scenario
    mesh: MeshSpec
    parameter: ParameterSpec


def test_plugin_is_an_entry_point() -> None:
    """Hypothesis calls it at its import; an environment without it has to be installed anew."""
    (entry,) = entry_points(group="hypothesis", name="syncverify")
    assert entry.load() is register


@pytest.mark.long
@settings(max_examples=5)
@given(st.from_type(Scenario), st.builds(Case))
def test_types_are_found(scenario: Scenario, case: Case) -> None:
    # The plugin draws meshes of up to 4 ranks.
    assert scenario.mesh.num_ranks <= 4
    assert isinstance(case.scenario, Scenario)
    assert case.mesh.num_ranks <= 4
    assert isinstance(case.parameter, ParameterSpec)
