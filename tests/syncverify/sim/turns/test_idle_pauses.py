"""Sleeps are summed up while no rank records anything, and no process of a rank works."""

import pytest

from syncverify.processes.process_state import Work
from syncverify.sim.turns.stalls import IdlePauses


class Rank:
    """A rank whose descendants do what a test says."""

    pid = None
    work = Work()

    def processor_seconds(self) -> float:
        return 0.0

    def work_of_descendants(self) -> Work:
        return self.work


@pytest.fixture
def rank() -> Rank:
    return Rank()


@pytest.fixture
def pauses(rank: Rank) -> IdlePauses:
    return IdlePauses(1.0, [rank])


def test_sleeps_reach_the_bound_in_sum(pauses: IdlePauses) -> None:
    assert [pauses.are_over(0.25, 7) for _ in range(4)] == [False, False, False, True]


def test_a_record_begins_the_sum_anew(pauses: IdlePauses) -> None:
    found = [pauses.are_over(0.5, progress) for progress in (1, 2, 3, 3)]
    assert found == [False, False, False, True]


@pytest.mark.parametrize("work", [Work(1.0), Work(is_ready=True)])
def test_a_rank_may_sleep_while_a_descendant_works(
    rank: Rank, pauses: IdlePauses, work: Work
) -> None:
    pauses.are_over(0.0, 1)
    rank.work = work
    assert not pauses.are_over(1.0, 1)
    rank.work = Work(work.seconds)
    assert pauses.are_over(1.0, 1)
