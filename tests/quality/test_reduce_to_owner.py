"""Gradients that are right on their owner alone, and the defects that remain."""

from typing import Any

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.program.modules import module_parameters
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.subjects.subject import resolve
from tests.programs import report_on
from tests.quality.planted import owners

RIGHT = (
    owners.ReducesToOwner,
    pytest.param(owners.NamesOwner, marks=pytest.mark.nightly),
    pytest.param(owners.ReducesOneByOneInBackward, marks=pytest.mark.nightly),
)


@pytest.mark.nightly
@pytest.mark.parametrize("subject", RIGHT)
@pytest.mark.parametrize("backend", ["sim", "gloo"])
def test_a_right_reduction_to_owners_is_silent(
    subject: type[Any], backend: str
) -> None:
    examples = 80 if backend == "sim" else 30
    report = report_on(subject, ranks=4, backend=backend, examples=examples)
    assert [each.violation.summary for each in report.violations] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "causes"),
    [
        (owners.ReducesToOwner, set()),
        (owners.NamesOwner, set()),
        (owners.ChangesOwner, {"wrong_owner"}),
        (owners.NamesAnotherOwner, {"wrong_owner"}),
    ],
)
def test_a_module_is_judged_on_its_owners(subject: type[Any], causes: set[str]) -> None:
    mesh = MeshSpec((2,), ("dp",))
    scenario = Scenario(mesh, module_parameters("mlp", mesh), (1, 1), 64, module="mlp")
    resolved = resolve(subject)
    run = SimBackend().run(scenario, resolved)
    found = check(scenario, run, resolved.capabilities)
    assert {each.property for each in found} <= {"gradient_is_within_rounding"}
    assert {each.cause for each in found} == causes


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "cause", "message"),
    [
        (
            owners.ChangesOwner, "wrong_owner",
            "gradient of 'p0' is right on rank 1 in step 1, and not on its owner, rank 0",
        ),
        pytest.param(
            owners.NamesAnotherOwner, "wrong_owner",
            "gradient of 'p0' is right on rank 1 in step 1, and not on its owner, rank 0",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            owners.LosesAContribution, "rank_contribution_missing", None,
            marks=pytest.mark.nightly,
        ),
        (
            owners.NobodyOwns, "no_owner",
            "expected an owner of 'p0' among ranks [0, 1], but owner() is false on each",
        ),
        pytest.param(owners.PromisesAllRanks, None, None, marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_a_defect_is_found_and_small(
    subject: type[Any], cause: str | None, message: str | None
) -> None:
    found = {
        each.violation.cause: each
        for each in report_on(subject, ranks=4, examples=20).violations
        if each.violation.property == "gradient_equals_reference"
    }
    assert found
    if cause is not None:
        assert cause in found
        least = found[cause].scenario
        # Three ranks of one parameter, or two of two: there the lost rank owns the second.
        assert least.mesh.num_ranks + len(least.parameters) <= 4
    if message is not None:
        assert found[cause].violation.summary == message
