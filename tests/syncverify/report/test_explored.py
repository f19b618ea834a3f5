"""Lines of a report about its runs."""

import pytest

from syncverify.judge.ordering.held_memory import HeldMemory
from syncverify.report.explored import explored_lines
from syncverify.search.result import RunStatistics
from syncverify.search.schedules import COMPLETE, RANDOM, ScheduleCoverage

COMPLETE_LINE = "schedules of 2 scenarios complete: 5 classes of {} interleavings"


def lines(
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


def test_replays_are_counted() -> None:
    assert lines(RunStatistics(), num_replayed=3) == [
        (
            "saved by earlier runs, and played first: 3 scenarios, with 1 distinct "
            "violation"
        ),
    ]


@pytest.mark.parametrize(("counted", "total"), [(6, "10"), (None, "more than 4")])
def test_complete_schedules_are_added_up(counted: int | None, total: str) -> None:
    one, other = (
        ScheduleCoverage(COMPLETE, 2, 4),
        ScheduleCoverage(COMPLETE, 3, counted),
    )
    played = {one: 1, other: 1}
    assert lines(RunStatistics(schedules=played)) == [COMPLETE_LINE.format(total)]


def test_random_priorities_promise_the_least_probability() -> None:
    played = {ScheduleCoverage(RANDOM, probability=p): 1 for p in (0.5, 0.25)}
    assert lines(RunStatistics(schedules=played)) == [
        (
            "schedules of 2 scenarios by random priorities: in each, a bug of 3 ordered "
            "moves was met with a probability of at least 0.25"
        ),
    ]


def test_overlap_and_piled_memory_have_a_line_each() -> None:
    pile = HeldMemory(num_blocks=2, num_bytes=12, largest=8, rank=1, step=2)
    assert lines(RunStatistics(3, 4, pile)) == [
        "overlap with backward: 3 of 4 possible steps",
        (
            "memory: record_stream kept up to 2 freed blocks (12 B, the largest 8 B, step 2, "
            "rank 1) from reuse; freeing after stream.wait_event() keeps none"
        ),
    ]


def test_overlap_that_the_contract_does_not_promise_is_not_judged() -> None:
    (line,) = lines(RunStatistics(3, 4), promises_overlap=False)
    assert line.startswith("overlap with backward (not judged): ")
