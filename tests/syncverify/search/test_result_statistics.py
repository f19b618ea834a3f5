"""Statistics describe the runs of a search, and several searches merge into one."""

from syncverify.judge.ordering.held_memory import HeldMemory
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.result import RunStatistics, StatisticsCollector
from syncverify.search.schedules import (
    DRAWN,
    SAME,
    ScheduleCoverage,
)

SCENARIO = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (), ("R",)),), (1,), 64
)


def test_scenario_that_is_drawn_twice_counts_once() -> None:
    collector = StatisticsCollector()
    collector.schedules_played(SCENARIO.digest(), ScheduleCoverage(SAME))
    collector.schedules_played(SCENARIO.digest(), ScheduleCoverage(DRAWN))
    assert collector.statistics().schedules == {ScheduleCoverage(DRAWN): 1}


def test_merged_statistics_keep_the_most_memory_and_all_schedules() -> None:
    pile = HeldMemory(num_blocks=2, num_bytes=8, largest=4)
    one = RunStatistics(1, 2, schedules={ScheduleCoverage(SAME): 1})
    other = RunStatistics(3, 4, pile, {ScheduleCoverage(DRAWN): 2})
    assert RunStatistics.merged([one, other, one]) == RunStatistics(
        5, 8, pile, {ScheduleCoverage(SAME): 2, ScheduleCoverage(DRAWN): 2}
    )
