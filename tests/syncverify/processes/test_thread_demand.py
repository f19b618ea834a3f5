"""A thread that waits for the GIL asks for nothing; one that is kept from running does."""

import os
import threading
from pathlib import Path

import pytest

from syncverify.processes import thread_demand
from syncverify.processes.thread_demand import ThreadDemand

SECONDS = 5.0
Files = dict[int, tuple[str, float, int]]


@pytest.fixture
def demand(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[ThreadDemand, Files, list[float]]:
    """Return a demand, the threads that it reads, and the clock that it reads."""
    threads: Files = {7: ("S", 1.0, 50)}
    clock = [100.0]
    kind = thread_demand._Thread
    monkeypatch.setattr(
        thread_demand,
        "_threads",
        lambda _: {number: kind(*each) for number, each in threads.items()},
    )
    monkeypatch.setattr(thread_demand.time, "monotonic", lambda: clock[0])
    return ThreadDemand(1), threads, clock


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize(
    ("now", "of_silent", "of_others"),
    [
        (("S", 1.0, 50), (0.0, False), (0.0, False)),  # sleeps
        (("R", 3.0, 50), (2.0, True), (2.0, True)),  # is kept from running
        (("R", 3.0, 60), (2.0, True), (2.0, True)),  # and slept ten times
        (("R", 3.0, 500), (0.0, False), (2.0, True)),  # wakes up for the GIL
        (("D", 3.0, 500), (0.0, True), (2.0, True)),  # waits for swapped memory
    ],
)
def test_demand_of_a_thread(
    demand: tuple[ThreadDemand, Files, list[float]],
    now: tuple[str, float, int],
    of_silent: tuple[float, bool],
    of_others: tuple[float, bool],
    *,
    is_silent: bool,
) -> None:
    asked, threads, clock = demand
    threads[7], clock[0] = now, clock[0] + SECONDS
    expected = of_silent if is_silent else of_others
    assert asked.look(is_silent=is_silent) == expected


def test_a_thread_that_is_new_counts_by_its_state(
    demand: tuple[ThreadDemand, Files, list[float]],
) -> None:
    asked, threads, clock = demand
    threads[8], clock[0] = ("R", 9.0, 900), clock[0] + SECONDS
    assert asked.look(is_silent=True) == (0.0, True)


def test_a_process_that_is_gone_asks_for_nothing() -> None:
    assert ThreadDemand(2**22 + 1).look(is_silent=True) == (0.0, False)


@pytest.mark.skipif(not Path("/proc").exists(), reason="the kernel has no /proc")
def test_the_kernel_tells_of_a_thread_that_runs_or_waits_for_a_processor() -> None:
    asked, ends = ThreadDemand(os.getpid()), threading.Event()
    assert not asked.look(is_silent=False)[1]

    def spin() -> None:
        while not ends.is_set():
            pass

    threads = [threading.Thread(target=spin) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        assert any(asked.look(is_silent=False)[1] for _ in range(1000))
    finally:
        ends.set()
        for each in threads:
            each.join()
