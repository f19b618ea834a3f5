"""Defects that need some timing are found with schedules, and only with them."""

import re
from typing import Any

import pytest
from planted import timing
from planted.view_buckets import ViewBuckets

from syncverify import verify
from syncverify.backends.sim import SimBackend
from syncverify.properties import check
from syncverify.replay import decode
from syncverify.report.report import Report
from syncverify.report.text import violation_text
from syncverify.sim.decisions import Decisions, Following
from syncverify.subject import resolve
from syncverify.verification import PropertyViolation

pytestmark = pytest.mark.slow
DEFECTS = {
    timing.FallsThrough: (
        "gradient_equals_reference",
        "rank_contribution_missing",
        # Too early, or too soon after.
        r"rank \d moves next|is_completed\(\) tells rank \d that it is not done yet",
    ),
    timing.FirstComeIsRankZero: (
        "every_rank_finishes",
        "collective_mismatch",
        "rank 1 moves next",
    ),
}
CORRECT = [
    timing.AsksThenWaits,
    timing.AsksUntilDone,
    timing.FirstComeIsFirst,
    timing.WaitsInSeededOrder,
]


def report_on(subject: type[Any], schedules: str, examples: int) -> Report:
    try:
        return verify(subject, ranks=2, examples=examples, seed=0, schedules=schedules)
    except PropertyViolation as violation:
        return violation.report


@pytest.mark.parametrize("schedules", ["drawn", "all", "pct:20"])
@pytest.mark.parametrize("subject", DEFECTS)
def test_defect_of_timing_is_found_and_replays(
    subject: type[Any], schedules: str
) -> None:
    report = report_on(subject, schedules, 25)
    by_identity = {
        (each.violation.property, each.violation.cause): each
        for each in report.violations
    }
    name, cause, meaning = DEFECTS[subject]
    found = by_identity[name, cause]
    assert found.scenario.mesh.shape == (2,)
    (needed,) = (d.meaning for d in found.decisions if d.chosen)
    assert re.fullmatch(meaning, needed)
    assert f": {needed}\n" in violation_text(found, subject="S", backend="sim")
    recording = decode(found.token)
    decisions = Decisions(Following(recording.schedule))
    again = SimBackend().run_scheduled(recording.scenario, resolve(subject), decisions)
    assert tuple(decisions.taken) == found.decisions[: len(decisions.taken)]
    assert found.violation in check(
        recording.scenario, again, resolve(subject).capabilities
    )


@pytest.mark.parametrize("subject", DEFECTS)
def test_defect_of_timing_does_not_show_by_default(subject: type[Any]) -> None:
    report = report_on(subject, "default", 15)
    assert report.violations == ()
    assert report.schedules["the default"] > 5


@pytest.mark.parametrize("schedules", ["drawn", "all:10"])
@pytest.mark.parametrize("subject", CORRECT)
def test_correct_twin_is_silent(subject: type[Any], schedules: str) -> None:
    assert report_on(subject, schedules, 12).violations == ()


def test_one_run_is_enough_where_order_cannot_matter() -> None:
    report = report_on(ViewBuckets, "all", 10)
    assert report.violations == ()
    assert report.schedules["all: order cannot matter"] == 10
    assert report.explored == ()


@pytest.mark.parametrize(
    "subject", [timing.WaitsInRandomOrder, timing.WaitsInOrderOfAddresses]
)
def test_what_depends_on_chance_is_found(subject: type[Any]) -> None:
    (found,) = report_on(subject, "drawn", 40).violations
    assert found.violation.identity == ("subject_is_deterministic", "acts_otherwise")
    assert "CollectiveWait" in str(found.violation.evidence)
