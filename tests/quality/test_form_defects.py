"""The harness looks at the form of a gradient, not at its numbers alone."""

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from tests.quality.planted.forms import FORM_DEFECTS, PROPERTY, FormDefect, Reforms

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    (
        ParameterSpec("w", (2, 3), ("R",)),
        ParameterSpec("sharded", (4,), ("S0",)),
        ParameterSpec("local", (3,), None),
    ),
    (1,),
    2**20,
)


def identities(subject: type[object]) -> list[tuple[str, str]]:
    found = resolve(subject)
    run = SimBackend().run(SCENARIO, found)
    return [each.identity for each in check(SCENARIO, run, found.capabilities)]


@pytest.mark.parametrize("defect", FORM_DEFECTS, ids=lambda each: each.cause)
def test_another_form_than_plain_torch_gives_is_a_violation(defect: FormDefect) -> None:
    assert identities(defect.subject) == [(PROPERTY, defect.cause)]


def test_gradients_that_are_assigned_in_their_form_are_right() -> None:
    assert identities(Reforms) == []
