"""A search that plays no further scenario says why, and what was left out."""

import threading
from typing import Any

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.report.beyond import Observing
from syncverify.report.text import diagnosis, verdict
from syncverify.subjects.subject import resolve
from syncverify.verification import run_search


class WaitsForEver(ViewBuckets):
    """A wait that no rank ends."""

    def wait(self) -> None:
        threading.Event().wait()


def searched(subject: Any, **options: Any) -> Any:
    numbers: dict[str, Any] = {"ranks": 2, "examples": 200, "seed": 0} | options
    return run_search(resolve(subject), SimBackend(hang_timeout_seconds=0.5), **numbers)


@pytest.mark.slow
def test_a_hang_ends_the_search_and_features_beyond_the_contract_are_not_tried() -> (
    None
):
    report = searched(WaitsForEver, observing=Observing())
    assert [each.violation.cause for each in report.violations] == ["never_returns"]
    assert report.beyond == ()
    assert report.not_tried == (
        "not tried: 199 of 200 scenarios and 112 features beyond the contract, since each "
        "hang takes seconds"
    )
    assert diagnosis(report).splitlines()[-2:] == [report.not_tried, verdict(report)]


@pytest.mark.slow
def test_a_hang_that_was_saved_is_played_once_more_and_nothing_else(
    tmp_path: Any,
) -> None:
    database = tmp_path / "found"
    searched(WaitsForEver, database=database)
    report = searched(WaitsForEver, database=database)
    assert report.examples == 0
    assert [each.violation.cause for each in report.violations] == ["never_returns"]
    assert report.not_tried.startswith("not tried: 200 of 200 scenarios, since")
