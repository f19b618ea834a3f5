"""A count that a call announces: a right synchronizer is not accused, wrong ones are found."""

from dataclasses import replace
from typing import Any

import pytest

from syncverify import verify
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests import programs
from tests.quality.planted import counts

STEPS = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{n}", (3,), ("R",)) for n in range(2)),
    (2, 3, 3, 1),
    12,
)
EVENTS = (
    PLAIN,
    "rebind",
    "rebind_announced",
    "rebind_announced/unbound",
    "remade",
    "unbind_early",
)
REDUCED_EARLY = ("accumulation_is_local_until_reduced", "reduced_early")
NOT_REDUCED = ("each_bucket_reduced_once_per_step", "not_reduced")


def identities(
    subject: type[Any] | str, event: str, accumulations: tuple[int, ...]
) -> set[tuple[str, str]]:
    """Play an event in the first of some steps, and return the violations."""
    later = [PLAIN] * (len(accumulations) - 1)
    events = () if event == PLAIN else (event, *later)
    scenario = replace(STEPS, accumulations=accumulations, events=events)
    return programs.identities(subject, scenario)


@pytest.mark.parametrize("subject", [counts.AnnouncedCount, "synchronizer"])
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(
    "accumulations", [STEPS.accumulations, (3, 1, 2), (1, 1, 1), (2, 2, 2)]
)
def test_announced_counts_are_right(
    subject: type[Any] | str, event: str, accumulations: tuple[int, ...]
) -> None:
    assert identities(subject, event, accumulations) == set()


@pytest.mark.parametrize(
    ("subject", "event", "identity"),
    [
        (counts.LosesCountOnBind, "rebind", REDUCED_EARLY),
        (counts.LosesCountOnBind, "unbind_early", REDUCED_EARLY),
        (counts.LosesCountOnBind, "rebind_announced", REDUCED_EARLY),
        (counts.LosesCountOnBind, "rebind_announced/unbound", REDUCED_EARLY),
        (counts.TellsBoundBucketsAlone, "rebind_announced/unbound", REDUCED_EARLY),
        (counts.AppliesCountOneStepLate, PLAIN, REDUCED_EARLY),
        (counts.AppliesCountOneStepEarly, PLAIN, NOT_REDUCED),
    ],
)
def test_a_wrong_count_is_found(
    subject: type[Any], event: str, identity: tuple[str, str]
) -> None:
    keeps_count = event in {"rebind", "unbind_early"}
    accumulations = (2, 2, 2) if keeps_count else STEPS.accumulations
    assert identity in identities(subject, event, accumulations)
    if event != PLAIN:
        assert identities(subject, PLAIN, accumulations) == set()


@pytest.mark.long
def test_a_search_accuses_no_constructor_without_a_count() -> None:
    report = verify(counts.AnnouncedCount, ranks=3, examples=40, seed=0)
    assert report.violations == ()
