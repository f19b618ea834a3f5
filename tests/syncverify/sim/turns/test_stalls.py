"""Ranks that stand still: holders of locks that threads share and processes do not are not judged,
and sleeps are summed up while no rank records anything, and no process of a rank works.
"""

import threading
from collections.abc import Callable

import pytest

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.processes.process_state import Work
from syncverify.sim.turns.scheduler import Scheduler
from syncverify.sim.turns.stalls import IdlePauses

LOCK = threading.Lock()


class HasLocks:
    """Ranks hold a lock while they wait for each other."""

    again = threading.RLock()
    two = threading.Semaphore(1)

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._own = threading.Lock()

    def of_module(self) -> None:
        with LOCK:
            self._scheduler.yield_turn()

    def of_class(self) -> None:
        with self.again:
            self._scheduler.yield_turn()

    def a_semaphore(self) -> None:
        self.two.acquire()
        self._scheduler.yield_turn()
        self.two.release()

    def own(self) -> None:
        with self._own:
            self._scheduler.yield_turn()

    def own_twice(self) -> None:
        with self._own, self._own:
            self._scheduler.yield_turn()

    def spins(self) -> None:
        with LOCK:
            while True:
                pass


def play(act: Callable[[HasLocks], None], num_ranks: int = 2) -> str | None:
    scheduler = Scheduler(num_ranks, progress=lambda: 0, hang_timeout_seconds=0.2)
    owners = [HasLocks(scheduler) for _ in range(num_ranks)]
    _, stall = scheduler.run(lambda rank: act(owners[rank]))
    return stall.kind if stall else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "name"),
    [
        (HasLocks.of_module, "LOCK"),
        (HasLocks.of_class, "again"),
        (HasLocks.a_semaphore, "two"),
    ],
)
def test_a_lock_that_threads_share_is_not_judged(
    act: Callable[[HasLocks], None], name: str
) -> None:
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        play(act)
    place = rf"rank 1 waits at \S*test_stalls\.py:\d+ for {name}, a lock that all"
    assert caught.match(place)
    assert str(caught.value).endswith("of `syncverify run --backend gloo` for a class")


@pytest.mark.long
@pytest.mark.parametrize("act", [HasLocks.own_twice, HasLocks.spins])
def test_a_hang_of_the_subject_alone_is_judged(act: Callable[[HasLocks], None]) -> None:
    assert play(act) == "never_returns"
    assert play(act, num_ranks=1) == "never_returns"


def test_a_lock_of_each_rank_holds_nobody_up() -> None:
    assert play(HasLocks.own) is None


class Rank:
    """A rank whose descendants do what a test says."""

    pid = None
    work = Work()

    def processor_seconds(self) -> float:
        return 0.0

    def work_of_descendants(self) -> Work:
        return self.work


def test_sleeps_reach_the_bound_in_sum() -> None:
    pauses = IdlePauses(1.0, [Rank()])
    assert [pauses.are_over(0.25, 7) for _ in range(4)] == [False, False, False, True]


def test_a_record_begins_the_sum_anew() -> None:
    pauses = IdlePauses(1.0, [Rank()])
    found = [pauses.are_over(0.5, progress) for progress in (1, 2, 3, 3)]
    assert found == [False, False, False, True]


@pytest.mark.parametrize("work", [Work(1.0), Work(is_ready=True)])
def test_a_rank_may_sleep_while_a_descendant_works(work: Work) -> None:
    rank = Rank()
    pauses = IdlePauses(1.0, [rank])
    pauses.are_over(0.0, 1)
    rank.work = work
    assert not pauses.are_over(1.0, 1)
    rank.work = Work(work.seconds)
    assert pauses.are_over(1.0, 1)
