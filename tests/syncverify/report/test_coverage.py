"""The coverage lines of a report, and the message about too little coverage."""

from dataclasses import replace

import pytest

from syncverify.report.coverage import CoverageSummary

GAPS = CoverageSummary(
    num_values=60,
    num_pairs=1500,
    missing_values=("mesh=unnamed", "used=never"),
    missing_pairs=(("ranks=1", "mesh=unnamed"),) * 100,
    applied={"zero_grad_clears": 7, "overlap_is_possible": 0},
)
FULL = replace(GAPS, missing_values=(), applied={"zero_grad_clears": 7})


def test_gaps_take_two_lines() -> None:
    assert list(GAPS.lines()) == [
        "coverage: 58 of 60 feature values, 1,400 of 1,500 pairs; never: "
        + ", ".join(GAPS.missing_values),
        "nothing to judge in any scenario: overlap_is_possible",
    ]


def test_many_gaps_are_not_all_listed() -> None:
    many = replace(GAPS, missing_values=tuple(f"ranks={n}" for n in range(30)))
    assert next(many.lines()).endswith("ranks=0, ranks=1, ranks=2, ranks=3 and 26 more")


def test_what_is_complete_takes_one_line() -> None:
    assert list(FULL.lines()) == [
        "coverage: 60 of 60 feature values, 1,400 of 1,500 pairs"
    ]


@pytest.mark.parametrize(
    ("summary", "percent", "is_enough"),
    [(FULL, 93.3, True), (FULL, 93.4, False), (GAPS, 10.0, False), (FULL, 0, True)],
)
def test_enough_is_every_value_and_so_many_pairs(
    summary: CoverageSummary,
    percent: float,
    is_enough: bool,  # noqa: FBT001  # a parameter of a table
) -> None:
    assert (summary.gap(percent) is None) == is_enough


def test_a_gap_names_what_is_missing_and_the_remedy() -> None:
    few = replace(GAPS, missing_pairs=(("ranks=1", "steps=2"),))
    assert few.gap(99.5) == (
        "expected every feature value and 99.5 % of the pairs, but 2 of 60 values and 1 of "
        "1500 pairs never occurred: mesh=unnamed, used=never, ranks=1 with steps=2; play "
        "more examples, or declare in Capabilities(outside=...) the features that the "
        "subject does not cover"
    )
