"""A poll of an event may say "not yet": defects that only schedules show."""

import re
from typing import Any

import pytest

from studies.redteam.right.waits import QueriesAnEvent
from syncverify import verify
from syncverify.report.report import Report
from syncverify.verification.verify import PropertyViolation
from tests.quality.planted import timing

NOT_YET = r"query\(\) tells rank \d that it is not done yet"


def report_on(subject: type[Any], schedules: str) -> Report:
    try:
        return verify(subject, ranks=2, examples=6, seed=0, schedules=schedules)
    except PropertyViolation as violation:
        return violation.report


@pytest.mark.slow
def test_a_subject_that_ignores_not_yet_is_found() -> None:
    (found,) = report_on(timing.IgnoresNotYet, "all:10").violations
    identity = ("wait_orders_reads_after_reduce", "read_before_reduced")
    assert found.violation.identity == identity
    (needed,) = (d.meaning for d in found.decisions if d.chosen)
    assert re.fullmatch(NOT_YET, needed)


@pytest.mark.slow
def test_it_does_not_show_by_default() -> None:
    assert report_on(timing.IgnoresNotYet, "default").violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("schedules", ["drawn", "all:2"])
@pytest.mark.parametrize("subject", [timing.QueriesThenWaits, QueriesAnEvent])
def test_correct_twin_is_silent(subject: type[Any], schedules: str) -> None:
    assert report_on(subject, schedules).violations == ()
