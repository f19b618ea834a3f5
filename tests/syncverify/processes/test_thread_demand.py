"""A thread that waits for the GIL asks for nothing; one that is kept from running does."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from syncverify.processes import process_state
from syncverify.processes.process_state import ThreadDemand

SECONDS = 5.0
Files = dict[int, tuple[Any, ...]]


@pytest.fixture
def demand(monkeypatch: pytest.MonkeyPatch) -> tuple[ThreadDemand, Files, list[float]]:
    """Return a demand, the threads that it reads, and the clock that it reads."""
    threads: Files = {7: ("S", 1.0, 50)}
    clock = [100.0]
    kind = process_state._Thread
    monkeypatch.setattr(
        process_state,
        "_threads",
        lambda _: {number: kind(*each) for number, each in threads.items()},
    )
    monkeypatch.setattr(process_state.time, "monotonic", lambda: clock[0])
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


@pytest.mark.parametrize(
    ("waited", "expected"),
    [
        (2.0, (0.0, False)),  # queues a little each time that it wakes up
        (3.0, (3.0, True)),  # the process is kept from running
    ],
)
def test_a_thread_that_polls_asks_for_nothing_while_it_is_served(
    demand: tuple[ThreadDemand, Files, list[float]],
    waited: float,
    expected: tuple[float, bool],
) -> None:
    _, threads, clock = demand
    threads[7] = ("R", 0.0, 0, True)
    asked = ThreadDemand(1)
    threads[7], clock[0] = ("R", waited, 500, True), clock[0] + SECONDS
    assert asked.look(is_silent=False) == expected


@pytest.mark.skipif(not Path("/proc").exists(), reason="the kernel has no /proc")
def test_the_loop_of_gloo_is_known_by_its_name() -> None:
    """Two ranks of one process connect, so the loop that serves both has run."""
    store = dist.HashStore()

    def connect(rank: int) -> dist.ProcessGroupGloo:
        return dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))

    with ThreadPoolExecutor(2) as ranks:
        groups = [*ranks.map(connect, range(2))]
    names = set[str]()
    for each in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread of another test may end meanwhile
            names.add(each.read_text().strip())
    assert process_state.LOOP_OF_GLOO in names
    for group in groups:
        group.shutdown()


def test_a_process_that_is_gone_asks_for_nothing() -> None:
    assert ThreadDemand(2**22 + 1).look(is_silent=True) == (0.0, False)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").exists(), reason="the kernel has no /proc")
def test_the_kernel_tells_of_a_thread_that_runs_or_waits_for_a_processor() -> None:
    asked, ends = ThreadDemand(os.getpid()), threading.Event()
    assert not asked.look(is_silent=False).is_ready

    def spin() -> None:
        while not ends.is_set():
            pass

    threads = [threading.Thread(target=spin) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        assert any(asked.look(is_silent=False).is_ready for _ in range(1000))
    finally:
        ends.set()
        for each in threads:
            each.join()
