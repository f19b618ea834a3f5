"""The harness on modes in which sums travel another way than by one all-reduce."""

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
from syncverify.search.observation import features_beyond
from syncverify.subjects.subject import resolve

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
    verify(subject, backend="sim", ranks=4, examples=6, seed=0)


@pytest.mark.nightly
def test_the_harness_finds_nothing_in_gradients_that_are_marked() -> None:
    verify(MarksByHand, backend="sim", ranks=4, examples=60, seed=0)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_mode_is_asked_for_what_the_usual_mode_is(subject: type[UsualMode]) -> None:
    usual = features_beyond(resolve("synchronizer").capabilities)
    assert features_beyond(resolve(subject).capabilities) == usual
