"""Where ranks part: by the last collective of all, unequal lines, and groups in a circle."""

from collections.abc import Sequence

import pytest

from syncverify.judge.properties.launch_order import parting
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import RankRun, Run
from syncverify.trace.source_lines import SourceLine
from tests.syncverify.judge.properties.handmade_traces import launch

PAIR, TRIO = (0, 1), (0, 1, 2)
A = [launch("a", PAIR, n, source=SourceLine("a.py", 7, "loop")) for n in range(4)]
B = launch("b", PAIR, 0)
ALL = [launch("all", TRIO, n) for n in range(2)]
C = launch("c", (1, 2), 0)
SEND = launch("a, messages", PAIR, 0, operation="send")
ROWS = [launch("row", (0, 1), 0), launch("row", (2, 3), 0)]
COLUMNS = [launch("column", (0, 2), 0), launch("column", (1, 3), 0)]


@pytest.mark.parametrize(
    ("rows", "crossed", "last", "times"),
    [
        pytest.param([A, A[:3]], [], A[2], [(4, 3)], id="a loop left early"),
        pytest.param([ALL, ALL, ALL[:1]], [], ALL[0], [], id="left out once"),
        pytest.param([[A[0]], [B]], [(0,), (1,)], None, [], id="opposite orders"),
        pytest.param(
            [ALL[:1], ALL[:1], [C]], [(0, 1), (2,)], None, [], id="more wait beside"
        ),
        pytest.param(
            [ROWS[:1], COLUMNS[1:], COLUMNS[:1], ROWS[1:]],
            [(0,), (1,), (2,), (3,)],
            None,
            [],
            id="both axes of a mesh",
        ),
        pytest.param([A[:1], [SEND]], None, None, None, id="they never met"),
        pytest.param([[A[0], B], [B, A[0]]], None, None, None, id="all are met"),
    ],
)
def test_ranks_part(
    rows: Sequence[Sequence[CollectiveLaunch]],
    crossed: list[tuple[int, ...]] | None,
    last: CollectiveLaunch | None,
    times: list[tuple[int, ...]] | None,
) -> None:
    found = parting(Run("sim", tuple(RankRun(trace=[*own]) for own in rows)))
    if crossed is None:
        assert found is None
    else:
        assert found is not None
        assert [way.ranks for way in found.crossed] == crossed
        assert (found.last, [each.times for each in found.unequal]) == (last, times)


def test_ranks_last_met_where_all_of_them_were() -> None:
    found = parting(Run("sim", (RankRun(trace=[*A]), RankRun(trace=A[:2]))), A[3].key)
    assert found is not None
    assert found.last == A[1]
