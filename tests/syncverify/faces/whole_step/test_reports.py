"""Reports of other projects are found, named, and silent when repaired."""

from dataclasses import replace

import pytest

from syncverify.judge.whole_step.causes import NotClipped
from tests.syncverify.faces.whole_step.reports.table import REPORTS, Report, play

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_a_reported_mistake_is_named(report: Report) -> None:
    result = play(report, is_repaired=False)
    assert report.words in str(result)
    if report.quantity is None:
        assert result.num_violations == 1
        assert not result.mistakes
        return
    (mistake,) = result.mistakes
    found = mistake.finding
    cause = found.cause
    if isinstance(cause, NotClipped):
        cause = replace(cause, coefficient=0.0)  # it depends on random values
    assert (found.quantity, cause) == (report.quantity, report.cause)
    assert {each.name for each in found.differences} == report.names
    assert not report.spread or {e.name for e in found.spread} == report.spread
    assert not result.num_violations


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_a_repaired_report_is_right(report: Report) -> None:
    result = play(report, is_repaired=True)
    assert result.is_right, str(result)
    plain = [each for each in result.plays if each.variation is None]
    # The smallest report has one layer: its gradients, values and states in two steps.
    assert min(each.num_values for each in plain) > 20
