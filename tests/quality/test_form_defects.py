"""The harness looks at the form of a gradient, not at its numbers alone."""

import pytest

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import identities
from tests.quality.planted.forms import FORM_DEFECTS, Reforms
from tests.quality.planted.planted import Planted

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


@pytest.mark.parametrize("defect", FORM_DEFECTS, ids=lambda each: each.cause)
def test_another_form_than_plain_torch_gives_is_a_violation(defect: Planted) -> None:
    assert identities(defect.subject, SCENARIO) == {defect.identity}


def test_gradients_that_are_assigned_in_their_form_are_right() -> None:
    assert identities(Reforms, SCENARIO) == set()
