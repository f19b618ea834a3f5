"""The harness on modes in which sums travel another way than by one all-reduce."""

from dataclasses import replace

import pytest

from studies.stand_ins.modes import (
    ScattersAndGathers,
    SumsInAHook,
    TellsWhatItUsed,
    UsualMode,
)
from syncverify import verify
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.programs import identities


class ChecksSumsOfAHook(SumsInAHook):
    """Leaves the sums to a comm hook, and checks that they are finite."""

    config = replace(SumsInAHook.config, check_finite=True)


class LeavesNone(UsualMode):
    """Clears gradients to None; the first gradients of a step are copied over the old bucket."""

    def zero_grad(self, **_: object) -> None:
        super().zero_grad(set_to_none=True)


SUBJECTS = [
    ScattersAndGathers,
    SumsInAHook,
    ChecksSumsOfAHook,
    LeavesNone,
    TellsWhatItUsed,
]


@pytest.mark.long
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_harness_finds_nothing(subject: type[UsualMode]) -> None:
    verify(subject, backend="sim", ranks=4, examples=4, seed=0)


class FeedsErrorsBack(UsualMode):
    """Sums by the hook that is shipped."""

    config = replace(UsualMode.config, comm_hook=bf16_error_feedback)


@pytest.mark.parametrize("event", ["failing_collectives", "failing_collectives/first"])
@pytest.mark.parametrize(
    "subject", [FeedsErrorsBack, ScattersAndGathers, SumsInAHook, TellsWhatItUsed]
)
def test_a_collective_that_fails_is_not_hidden(
    subject: type[UsualMode], event: str
) -> None:
    weights = tuple(ParameterSpec(f"p{n}", (3,), ("R",)) for n in range(2))
    scenario = Scenario(MeshSpec((2,), ("dp",)), weights, (1,), 12, events=(event,))
    assert identities(subject, scenario) == set()
