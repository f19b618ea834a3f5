"""A search that plays no further scenario says why, and what was left out."""

import threading
from typing import Any

import pytest

from syncverify.command.verification.reported_search import run_search
from syncverify.playing.sim import SimBackend
from syncverify.report.run import diagnosis
from syncverify.report.text import verdict
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.settings import Settings
from syncverify.search.observation import Observing
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.subjects.subject import resolve

# The contract of `ViewBuckets` names no feature, so that all of them are beyond it.
BEYOND = f"{len(OPTIONAL)} features beyond the contract"


class WaitsForEver(ViewBuckets):
    """A wait that no rank ends."""

    def wait(self) -> None:
        threading.Event().wait()


def searched(subject: Any, observing: Observing | None = None, **options: Any) -> Any:
    settings = Settings(ranks=2, seed=0, **options)
    backend = SimBackend(hang_timeout_seconds=0.5)
    return run_search(resolve(subject), backend, settings, observing)


@pytest.mark.long
def test_a_hang_ends_the_search_and_features_beyond_the_contract_are_not_tried() -> (
    None
):
    report = searched(WaitsForEver, observing=Observing())
    assert [each.violation.cause for each in report.violations] == ["never_returns"]
    assert report.beyond == ()
    assert str(report.not_tried) == (
        f"not tried: 199 of 200 scenarios and {BEYOND}, since each hang takes seconds"
    )
    last = f"\n\n{report.not_tried}\n\n{verdict(report)}"
    assert diagnosis(report).endswith(last)


class TakesParameters(ViewBuckets):
    """Takes the list of groups for a list of parameters."""

    def __init__(self, param_groups: Any, *others: Any) -> None:
        self.numbers = [each.numel() for each in param_groups]
        super().__init__(param_groups, *others)


@pytest.mark.slow
def test_a_class_that_always_raises_ends_the_search_with_what_it_is_given() -> None:
    report = searched(TakesParameters, observing=Observing())
    [found] = report.violations
    assert found.violation.cause == "raised_AttributeError"
    assert (report.examples, report.beyond) == (5, ())
    assert str(report.not_tried) == (
        f"not tried: 195 of 200 scenarios and {BEYOND}, since each of the first 5 runs ends "
        "in bind(), at the same line"
    )
    raised, place, all_of_them, hint, replay, empty, last = diagnosis(report).split(
        "\n"
    )
    assert raised.endswith("'list' object has no attribute 'numel'")
    assert "in <listcomp>: self.numbers = " in place or "in __init__: " in place
    assert all_of_them == (
        "  all 5 scenarios raised it at this line; not tried: 195 of 200 scenarios and "
        f"{BEYOND}"
    )
    assert "param_groups is a list of lists of parameters" in hint
    assert replay.startswith("  replay: syncverify replay sv2-")
    assert (empty, last) == ("", verdict(report))
