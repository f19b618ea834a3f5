"""The harness is silent on synchronizers that are right.

Over 1,000 scenarios for each seed:
pytest tests/quality/test_correct_twins.py --hypothesis-profile=nightly
"""

from typing import Any

import pytest
from hypothesis import settings

from syncverify import verify
from tests.quality.planted.twins import OF_FEW_SCENARIOS, PLAIN

SEEDS = (0, 1)


def num_scenarios(usual: int) -> int:
    """Return the number that a day plays, or by night that of the profile."""
    nightly = settings().max_examples
    return nightly if nightly >= 1000 else usual


@pytest.mark.long
@pytest.mark.parametrize(
    "twin",
    [
        PLAIN[0],
        *(pytest.param(twin, marks=pytest.mark.nightly) for twin in PLAIN[1:]),
    ],
)
def test_correct_twin_has_no_violation_on_simulated_ranks(twin: type[Any]) -> None:
    examples = num_scenarios(25)
    reports = [
        verify(twin, backend="sim", ranks=4, examples=examples, seed=seed)
        for seed in SEEDS
    ]
    assert [report.violations for report in reports] == [()] * len(SEEDS)
    assert [report.examples for report in reports] == [examples] * len(SEEDS)


@pytest.mark.long
@pytest.mark.parametrize("twin", OF_FEW_SCENARIOS)
def test_twin_of_a_defect_has_no_violation(twin: type[Any]) -> None:
    examples = num_scenarios(6)
    report = verify(twin, backend="sim", ranks=4, examples=examples, seed=0)
    assert report.violations == ()
    assert report.examples == examples


@pytest.mark.long
@pytest.mark.parametrize("twin", PLAIN)
def test_correct_twin_has_no_violation_on_real_processes(twin: type[Any]) -> None:
    report = verify(twin, backend="gloo", ranks=3, examples=10, seed=0)
    assert report.violations == ()
    assert report.examples == 10
