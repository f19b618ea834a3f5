"""Where ranks part: by the last collective of all, unequal lines, and groups in a circle."""

from collections.abc import Sequence

import pytest

from syncverify.judge.properties.parting import parting
from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.run import RankRun, Run
from syncverify.trace.source_lines import SourceLine
from tests.syncverify.judge.properties.handmade_traces import launch

PAIR, TRIO = (0, 1), (0, 1, 2)
A = [launch("a", PAIR, n, source=SourceLine("a.py", 7, "loop")) for n in range(4)]
B0 = launch("b", PAIR, 0)
ALL = [launch("all", TRIO, n) for n in range(2)]
SEND = launch("a, messages", PAIR, 0, operation="send")
ROWS = [launch("row", (0, 1), 0), launch("row", (2, 3), 0)]
COLUMNS = [launch("column", (0, 2), 0), launch("column", (1, 3), 0)]

Rows = Sequence[Sequence[CollectiveLaunch]]


def run_of(rows: Rows) -> Run:
    return Run("sim", tuple(RankRun(trace=[*own]) for own in rows))


@pytest.mark.parametrize(
    ("rows", "ways"),
    [
        ([[A[0]], [B0]], {PAIR[:1]: A[0], PAIR[1:]: B0}),
        ([[ALL[0]], [ALL[0]], [launch("b", (1, 2), 0)]], {(0, 1): ALL[0]}),
        ([ROWS[:1], COLUMNS[1:], COLUMNS[:1], ROWS[1:]], {(0,): ROWS[0]}),
        ([[A[0]], [SEND]], {}),
        ([[A[0], B0], [B0, A[0]]], {}),
        ([[A[0], B0], [A[0]]], {}),
    ],
    ids=[
        "opposite orders",
        "a third rank waits beside",
        "both axes of a mesh",
        "a message is no group",
        "all are met, if late",
        "a rank has finished",
    ],
)
def test_groups_in_a_circle_are_told(
    rows: Rows, ways: dict[tuple[int, ...], CollectiveLaunch]
) -> None:
    found = parting(run_of(rows))
    crossed = dict(found.crossed) if found else {}
    assert ways.items() <= crossed.items()
    assert bool(ways) == bool(crossed)


@pytest.mark.parametrize(
    ("rows", "last", "times"),
    [
        ([A, A[:3]], A[2], [(4, 3)]),
        ([A[:1], []], None, []),
        ([A[:2], A[:1]], A[0], [(2, 1)]),
        ([A, A], None, []),
        ([ALL, ALL, ALL[:1]], ALL[0], []),
    ],
)
def test_a_line_that_a_rank_leaves_early(
    rows: Rows, last: CollectiveLaunch | None, times: list[tuple[int, ...]]
) -> None:
    found = parting(run_of(rows))
    assert (found.last if found else None) == last
    assert ([each.times for each in found.unequal] if found else []) == times


def test_ranks_part_at_a_collective_in_which_they_disagree() -> None:
    other = launch("a", PAIR, 2, numel=8)
    found = parting(run_of([A[:3], [*A[:2], other]]), CollectiveKey("a", PAIR, 2))
    assert found is not None
    assert (found.last, [each.times for each in found.unequal]) == (A[1], [(3, 2)])
