"""Correct synchronizers are within rounding on real modules, and replicas agree."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from syncverify.judge.properties import check
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.program.modules import module_parameters
from syncverify.playing.sim import SimBackend
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.subjects.subject import resolve

TRIO, GRID = MeshSpec((3,), ("dp",)), MeshSpec((2, 2), ("dp", "tp"))
REPLICATED = [name for topic, name in OPTIONAL if topic == "module" and name != "moe"]
CASES = [*(("ddp", name) for name in REPLICATED), ("synchronizer", "moe")]
CASES += [("synchronizer", name) for name in REPLICATED]


def scenario_of(name: str, mesh: MeshSpec, dtype: str) -> Scenario:
    specs = module_parameters(name, mesh)
    typed = tuple(replace(spec, dtype=dtype) for spec in specs)
    return Scenario(mesh, typed, (2, 1), 200, module=name)


@pytest.fixture(scope="module")
def gloo() -> Iterator[GlooBackend]:
    opened = GlooBackend()
    yield opened
    opened.close()


@pytest.mark.long
@pytest.mark.parametrize("mesh", [TRIO, GRID], ids=["3", "2x2"])
@pytest.mark.parametrize(("subject", "module"), CASES)
def test_right_on_simulated_ranks(subject: str, module: str, mesh: MeshSpec) -> None:
    scenario, found = scenario_of(module, mesh, "float32"), resolve(subject)
    run = SimBackend().run(scenario, found)
    assert check(scenario, run, found.capabilities) == []
    assert run.fault is None


@pytest.mark.long
@pytest.mark.parametrize(("subject", "module"), CASES)
def test_right_on_real_processes(subject: str, module: str, gloo: GlooBackend) -> None:
    scenario, found = scenario_of(module, TRIO, "bfloat16"), resolve(subject)
    run = gloo.run(scenario, found)
    assert check(scenario, run, found.capabilities) == []
    assert run.fault is None
