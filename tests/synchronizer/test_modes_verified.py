"""The harness on modes in which sums travel another way than by one all-reduce."""

from dataclasses import replace

import pytest

from studies.stand_ins.modes import (
    ChecksSumsOfAHook,
    LeavesNone,
    MarksByHand,
    ScattersAndGathers,
    SumsInAHook,
    TellsWhatItUsed,
    UsualMode,
)
from syncverify import verify
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.observation import features_beyond
from syncverify.subjects.subject import resolve
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.programs import identities

SUBJECTS = [
    ScattersAndGathers,
    SumsInAHook,
    ChecksSumsOfAHook,
    LeavesNone,
    TellsWhatItUsed,
]


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_harness_finds_nothing(subject: type[UsualMode]) -> None:
    verify(subject, backend="sim", ranks=4, examples=4, seed=0)


class FeedsErrorsBack(UsualMode):
    """Sums by the hook that is shipped."""

    config = replace(UsualMode.config, comm_hook=bf16_error_feedback)


@pytest.mark.parametrize("event", ["failing_collectives", "failing_collectives/first"])
@pytest.mark.parametrize("subject", [FeedsErrorsBack, *SUBJECTS])
def test_a_collective_that_fails_is_not_hidden(
    subject: type[UsualMode], event: str
) -> None:
    weights = tuple(ParameterSpec(f"p{n}", (3,), ("R",)) for n in range(2))
    scenario = Scenario(MeshSpec((2,), ("dp",)), weights, (1,), 12, events=(event,))
    assert identities(subject, scenario) == set()


@pytest.mark.nightly
def test_the_harness_finds_nothing_in_gradients_that_are_marked() -> None:
    verify(MarksByHand, backend="sim", ranks=4, examples=60, seed=0)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_mode_leaves_out_the_same_features_as_the_usual_mode(
    subject: type[UsualMode],
) -> None:
    usual = features_beyond(resolve("synchronizer").capabilities)
    assert features_beyond(resolve(subject).capabilities) == usual
