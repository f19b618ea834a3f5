"""Replicas that are unequal at `bind()`: defects show through them alone, and a search meets them."""

from dataclasses import replace

import pytest

from syncverify.scenario.contract import EVERYTHING
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.scenario.token import Reproducer, decode, encode
from tests.programs import identities, violations
from tests.quality.planted import unequal_replicas as planted
from tests.quality.planted.first_drawn import first_drawn

EQUAL = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{n}", (3,), ("R",)) for n in range(2)),
    (2, 1),
    24,
)
UNEQUAL = replace(EQUAL, replicas="unequal")
LEFT = ("unbind_restores_parameters", "replicas_left_unequal")


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        (planted.TakesReplicasForEqual, ("gradient_equals_reference", "unexplained")),
        (planted.OrdersByValue, ("collectives_match_across_ranks", "bucket_mismatch")),
        (planted.MakesFirstEqual, LEFT),
    ],
)
def test_a_defect_shows_through_unequal_replicas_alone(
    defect: type, found: tuple[str, str]
) -> None:
    assert found in identities(defect, UNEQUAL)
    assert identities(defect, EQUAL) == set()


@pytest.mark.parametrize(
    "subject",
    [
        *(planted.LeavesReplicas, planted.MakesReplicasEqual, planted.SumsUpdated),
        *("synchronizer", "ddp", "fsdp2", "hsdp", "replicate", "replicate-fsdp"),
    ],
)
def test_right_programs_are_silent(subject: object) -> None:
    assert identities(subject, UNEQUAL) == set()


@pytest.mark.parametrize("subject", ["replicate", "ddp"])
def test_replicas_are_made_equal_in_the_first_forward_after_an_empty_step(
    subject: str,
) -> None:
    assert (
        identities(subject, replace(UNEQUAL, events=("empty_step", "plain"))) == set()
    )


def test_replicas_that_stay_unequal_are_named() -> None:
    (found,) = violations(planted.MakesFirstEqual, UNEQUAL)
    assert found.summary == (
        "replicas were made equal, and those of 'p1' are unequal on ranks 0, 1"
    )


def test_a_parameter_that_changes_after_gradients_were_read_is_found() -> None:
    late = identities(planted.MakesReplicasEqualLate, UNEQUAL)
    assert ("unbind_restores_parameters", "parameter_changed") in late


def test_a_search_meets_them_and_a_token_keeps_them() -> None:
    assert first_drawn(lambda each: each.replicas == "unequal", EVERYTHING, 100)
    reproducer = Reproducer("any", "cause", UNEQUAL)
    assert decode(encode(reproducer)) == reproducer
