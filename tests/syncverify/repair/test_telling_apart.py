"""Several mistakes give one value where numbers agree; a scenario in which they differ is shown."""

import pytest
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.placements import local_grad
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.judge.properties import check
from syncverify.repair.larger_scenarios import telling_scenarios, with_fewer_readings
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import resolve


class DividesByParameters(PlainGrads):
    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).div_(len(self.parameters))


class DividesByCount(PlainGrads):
    @override
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).div_(self.required)


SPECS = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2))
ALIKE = Scenario(MeshSpec((2,), ("dp",)), SPECS, (2,), 1 << 20)


def shown(subject: type, max_ranks: int) -> FoundViolation:
    found, backend = resolve(subject), SimBackend()
    violations = check(ALIKE, backend.run(ALIKE, found), found.capabilities)
    (violation,) = [each for each in violations if each.cause == "scaled"]
    assert violation.evidence.readings
    return with_fewer_readings(
        FoundViolation(violation, ALIKE, is_smallest=True), found, backend, max_ranks
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "divisor"),
    [
        (DividesByParameters, "divided by 2, the number of parameters"),
        (DividesByCount, "the number of accumulations"),
    ],
)
def test_numbers_that_differ_leave_one_reading(subject: type, divisor: str) -> None:
    entry = shown(subject, max_ranks=4)
    assert divisor in entry.violation.summary
    assert entry.violation.evidence.readings == ()
    assert entry.is_smallest


@pytest.mark.slow
def test_a_world_stays_as_small_as_it_was_asked_for() -> None:
    assert shown(DividesByParameters, max_ranks=2).scenario.mesh.num_ranks == 2


def test_telling_scenarios_keep_the_contract() -> None:
    contract = Capabilities(outside=frozenset({"ranks=3"}))
    meshes = {e.mesh.num_ranks for e in telling_scenarios(ALIKE, contract, 4)}
    assert meshes == {2}
