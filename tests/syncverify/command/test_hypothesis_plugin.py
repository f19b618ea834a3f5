"""Strategies that Hypothesis finds by type."""

import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncverify import MeshSpec, ParameterSpec, Scenario
from syncverify.command.hypothesis_plugin import register

FEW = settings(max_examples=5)


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


@pytest.mark.slow
@FEW
@given(...)
def test_type_of_an_argument_is_enough(scenario: Scenario) -> None:
    assert isinstance(scenario, Scenario)


@pytest.mark.slow
@FEW
@given(st.from_type(Scenario), st.builds(Case))
def test_types_are_found(scenario: Scenario, case: Case) -> None:
    # The plugin draws meshes of up to 4 ranks.
    assert scenario.mesh.num_ranks <= 4
    assert isinstance(case.scenario, Scenario)
    assert case.mesh.num_ranks <= 4
    assert isinstance(case.parameter, ParameterSpec)


@pytest.mark.long
@pytest.mark.parametrize("first", ["hypothesis", "syncverify.strategies"])
def test_import_of_hypothesis_stays_light(tmp_path: Path, first: str) -> None:
    script = f"import {first}; import sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "syncverify.command.hypothesis_plugin" in loaded
    assert first != "hypothesis" or not {"torch", "syncverify.strategies"} & {*loaded}
