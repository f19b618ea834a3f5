"""Which timings follow the first one, and how far they cover all."""

import pytest

from syncverify.scenario.schedule import COMPLETE, RANDOM, ScheduleChoice
from syncverify.sim.turns.timings import OtherTimings


@pytest.mark.parametrize(
    ("choice", "num_runs", "extent"),
    [("all:5", 1, COMPLETE), ("pct:3", 3, RANDOM), ("drawn", 1, RANDOM)],
)
def test_coverage_is_known_after_the_last_timing(
    choice: str, num_runs: int, extent: str
) -> None:
    timings = OtherTimings(ScheduleChoice.parse(choice), 1, 1, seed=0)
    listed = []
    for each in timings:
        assert timings.coverage is None
        each.next_rank([0])
        listed.append(each)
    assert len(listed) == num_runs
    assert timings.coverage is not None
    assert timings.coverage.extent == extent
