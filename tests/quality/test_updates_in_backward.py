"""Hooks that update parameters inside of backward: defects show through them alone."""

from dataclasses import replace

import pytest

from syncverify.scenario.contract import EVERYTHING
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.scenario.token import Reproducer, decode, encode
from tests.programs import identities
from tests.quality.planted import updates_in_backward as planted
from tests.quality.planted.first_drawn import first_drawn
from tests.quality.planted.planted import VALUE

AFTER_WAIT = Scenario(
    MeshSpec((2,), ("dp",)),
    (
        ParameterSpec("p0", (3,), ("R",)),
        ParameterSpec("p1", (2, 2), ("R",)),
        ParameterSpec("p2", (2,), ("R",), requires_grad=False),
    ),
    (2, 1),
    24,
)
IN_BACKWARD = replace(AFTER_WAIT, update="in_backward")


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        (
            planted.StartsInItsHook,
            ("bucket_is_exclusive_while_reducing", "touched_in_flight"),
        ),
        (planted.ReducesAfterBackward, (VALUE, "not_reduced")),
        (
            planted.ReadsReleasedGradients,
            ("every_rank_finishes", "raised_AttributeError"),
        ),
        (planted.ForgetsSteps, (VALUE, "gradient_missing")),
    ],
)
def test_a_defect_shows_through_updates_in_backward_alone(
    defect: type, found: tuple[str, str]
) -> None:
    assert found in identities(defect, IN_BACKWARD)
    assert identities(defect, AFTER_WAIT) == set()


@pytest.mark.parametrize(
    "subject",
    [
        *(planted.ReducesBeforeLaterHooks, planted.WaitsBeforeItReturns),
        *(planted.CallsSteps, "ddp", "fsdp2", "hsdp", "replicate-fsdp"),
        "synchronizer",  # refuses a gradient that is gone
    ],
)
def test_right_programs_are_silent(subject: object) -> None:
    assert identities(subject, IN_BACKWARD) == set()


def test_a_search_meets_them_and_a_token_keeps_them() -> None:
    assert first_drawn(lambda each: each.update == "in_backward", EVERYTHING, 100)
    reproducer = Reproducer("any", "cause", IN_BACKWARD)
    assert decode(encode(reproducer)) == reproducer
