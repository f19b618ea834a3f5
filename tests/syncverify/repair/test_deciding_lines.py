"""Lines that decide ran in the failing scenario, and in none that is right."""

from dataclasses import replace

import pytest
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.judge.properties import check
from syncverify.repair import diagnosis
from syncverify.repair.deciding_lines import deciding_lines
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import resolve


class IsWrongForManyParameters(PlainGrads):
    """Has a mistake in a branch."""

    capabilities = replace(Capabilities(), varying_accumulations=True)

    @override
    def wait(self) -> None:
        super().wait()
        if len(self.parameters) > 20:
            local_grad(self.parameters[0]).mul_(5)


class IsWrongEverywhere(PlainGrads):
    """Has a mistake on the plain path."""

    capabilities = replace(Capabilities(), varying_accumulations=True)

    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).mul_(5)


@pytest.fixture(autouse=True)
def _lines_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "deciding_lines", deciding_lines)


def deciders(subject: type) -> list[str]:
    specs = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(21))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1 << 20)
    found, backend = resolve(subject), SimBackend()
    first, *_ = check(scenario, backend.run(scenario, found), found.capabilities)
    entry = diagnosis.diagnosed(FoundViolation(first, scenario), found, backend)
    return [f"{each.line.function}: {each.code}" for each in entry.deciders]


@pytest.mark.slow
def test_the_line_of_a_branch_decides() -> None:
    assert deciders(IsWrongForManyParameters) == [
        "wait: local_grad(self.parameters[0]).mul_(5)"
    ]


@pytest.mark.slow
def test_no_line_of_the_plain_path_decides() -> None:
    assert deciders(IsWrongEverywhere) == []
