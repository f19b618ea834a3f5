"""Lines of a report about its coverage and its runs, and the message about too little."""

from dataclasses import replace

import pytest

from syncverify.judge.ordering.held_memory import HeldMemory
from syncverify.report.coverage import CoverageSummary, explored_lines
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.schedule import COMPLETE, RANDOM, ScheduleCoverage
from syncverify.scenario.space import Space
from syncverify.search.result import RunStatistics

GAPS = CoverageSummary(
    num_values=60,
    num_pairs=1500,
    missing_values=("mesh=unnamed", "used=never"),
    missing_pairs=(("ranks=1", "mesh=unnamed"),) * 100,
    applied={"zero_grad_clears": 7, "overlap_is_possible": 0},
)
EVERY_VALUE = replace(GAPS, missing_values=(), applied={"zero_grad_clears": 7})


def test_properties_that_judged_nothing_are_named_with_the_reason() -> None:
    gaps = replace(
        GAPS,
        applied={**GAPS.applied, "frees": 0},
        not_promised=frozenset({"overlap_is_possible"}),
    )
    assert list(gaps.lines()) == [
        "coverage: 58 of 60 feature values, 1,400 of 1,500 pairs",
        "not judged (no scenario applies): frees",
        "not judged (not promised by the contract): overlap_is_possible",
    ]


def test_tables_name_each_gap_and_the_verdict_a_few() -> None:
    many = replace(GAPS, missing_values=tuple(f"ranks={n}" for n in range(30)))
    values, *pairs = many.gap_lines()
    assert values == f"never: {', '.join(many.missing_values)}"
    assert pairs == ["never together: ranks=1 and mesh=unnamed"] * 100
    few = "ranks=0, ranks=1, ranks=2, ranks=3 and 26 more"
    assert many.clause_of_missing_values().endswith(few)


def test_promises_that_a_contract_does_not_make_are_reported() -> None:
    def of(capabilities: Capabilities) -> frozenset[str]:
        return CoverageSummary.of(Coverage(Space(capabilities, 2))).not_promised

    assert of(Capabilities()) == {"bucket_fits_the_cap", "overlap_is_possible"}
    assert of(Capabilities(overlaps_backward=True)) == {"bucket_fits_the_cap"}


@pytest.mark.parametrize(
    ("summary", "percent", "is_enough"),
    [
        (EVERY_VALUE, 93.3, True),
        (EVERY_VALUE, 93.4, False),
        (GAPS, 10.0, False),
        (EVERY_VALUE, 0, True),
    ],
)
def test_enough_is_every_value_and_so_many_pairs(
    summary: CoverageSummary, percent: float, is_enough
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


def explored(
    statistics: RunStatistics, *, num_replayed: int = 0, promises_overlap: bool = True
) -> list[str]:
    return list(
        explored_lines(
            statistics,
            num_replayed=num_replayed,
            num_failing=1,
            promises_overlap=promises_overlap,
        )
    )


@pytest.mark.parametrize(("counted", "total"), [(6, "10"), (None, "more than 4")])
def test_complete_schedules_are_added_up(counted: int | None, total: str) -> None:
    coverages = (
        ScheduleCoverage(COMPLETE, 2, 4),
        ScheduleCoverage(COMPLETE, 3, counted),
    )
    assert explored(RunStatistics(schedules=dict.fromkeys(coverages, 1))) == [
        f"schedules of 2 scenarios complete: 5 classes of {total} interleavings"
    ]


def test_random_priorities_promise_the_least_probability() -> None:
    played = {ScheduleCoverage(RANDOM, probability=p): 1 for p in (0.5, 0.25)}
    assert explored(RunStatistics(schedules=played), num_replayed=3) == [
        "saved by earlier runs, and played first: 3 scenarios, with 1 distinct violation",
        (
            "schedules of 2 scenarios by random priorities: in each, a bug of 3 ordered moves was "
            "met with a probability of at least 0.25"
        ),
    ]


def test_overlap_and_piled_memory_have_a_line_each() -> None:
    pile = HeldMemory(num_blocks=2, num_bytes=12, largest=8, rank=1, step=2)
    assert explored(RunStatistics(3, 4, pile)) == [
        "overlap with backward: 3 of 4 possible steps",
        (
            "memory: record_stream kept up to 2 freed blocks (12 B, the largest 8 B, step 2, rank "
            "1) from reuse; freeing after stream.wait_event() keeps none"
        ),
    ]
    (line,) = explored(RunStatistics(3, 4), promises_overlap=False)
    assert line.startswith("overlap with backward (not judged): ")
