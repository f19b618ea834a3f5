"""The harness is silent on synchronizers that are right."""

from typing import Any

import pytest
from planted.main_grads import AveragedMainGrads, MainGrads
from planted.view_buckets import ViewBuckets

from syncverify import verify

every_twin = pytest.mark.parametrize(
    "twin", [ViewBuckets, MainGrads, AveragedMainGrads]
)
SEEDS = (0, 1)


@pytest.mark.slow
@every_twin
def test_correct_twin_has_no_violation_on_simulated_ranks(twin: type[Any]) -> None:
    reports = [
        verify(twin, backend="sim", ranks=4, examples=50, seed=seed) for seed in SEEDS
    ]
    assert [report.violations for report in reports] == [()] * len(SEEDS)
    assert sum(report.examples for report in reports) == 100


@pytest.mark.slow
@every_twin
def test_correct_twin_has_no_violation_on_real_processes(twin: type[Any]) -> None:
    report = verify(twin, backend="gloo", ranks=3, examples=10, seed=0)
    assert report.violations == ()
    assert report.examples == 10
