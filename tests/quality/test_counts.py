"""A count that a call announces: a right synchronizer is not accused, wrong ones are found."""

from dataclasses import replace

import pytest

from syncverify import verify
from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
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
    subject: object, event: str, accumulations: tuple[int, ...] = STEPS.accumulations
) -> set[tuple[str, str]]:
    later = [PLAIN] * (len(accumulations) - 1)
    events = () if event == PLAIN else (event, *later)
    scenario = replace(STEPS, accumulations=accumulations, events=events)
    found = resolve(subject)  # type: ignore[arg-type]  # a class
    run = SimBackend().run(scenario, found)
    return {each.identity for each in check(scenario, run, found.capabilities)}


@pytest.mark.parametrize("subject", [counts.ToldCount, "synchronizer"])
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(
    "accumulations", [STEPS.accumulations, (3, 1, 2), (1, 1, 1), (2, 2, 2)]
)
def test_announced_counts_are_right(subject, event, accumulations) -> None:
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
def test_a_wrong_count_is_found(subject, event, identity) -> None:
    stays = (2, 2, 2) if event in {"rebind", "unbind_early"} else STEPS.accumulations
    assert identity in identities(subject, event, stays)
    if event != PLAIN:
        assert identities(subject, PLAIN, stays) == set()


@pytest.mark.long
def test_a_search_accuses_no_constructor_without_a_count() -> None:
    report = verify(counts.ToldCount, ranks=3, examples=40, seed=0)
    assert report.violations == ()
