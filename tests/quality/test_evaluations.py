"""Forwards without a backward: a defect shows through them alone, and the search meets them."""

from dataclasses import replace

import pytest

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.scenario.token import Reproducer, decode, encode
from tests.programs import identities
from tests.quality.planted.evaluations import CountsAllForwards, TellsForwardsApart
from tests.quality.planted.first_drawn import first_drawn

PLAIN_STEPS = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("w", (3,), ("R",)),), (2, 1), 24
)
EVALUATED = replace(PLAIN_STEPS, evaluation="before_steps")
EARLY = ("accumulation_is_local_until_reduced", "reduced_early")


def test_forwards_without_backward_show_a_defect_and_plain_steps_do_not() -> None:
    assert EARLY in identities(CountsAllForwards, EVALUATED)
    assert identities(CountsAllForwards, PLAIN_STEPS) == set()
    assert identities(TellsForwardsApart, EVALUATED) == set()


@pytest.mark.parametrize(
    "subject", ["synchronizer", "ddp", "fsdp2", "hsdp", "replicate"]
)
def test_subjects_are_right(subject: str) -> None:
    assert identities(subject, EVALUATED) == set()


def test_a_search_of_plain_steps_meets_them() -> None:
    assert first_drawn(lambda each: each.evaluation != "none", Capabilities(), 100)


def test_a_token_keeps_evaluations() -> None:
    reproducer = Reproducer("any", "cause", EVALUATED)
    assert decode(encode(reproducer)) == reproducer
