"""Ways to play scenarios: the harness with all of its checks, and what else there is."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import torch
import torch.distributed as dist

from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.oracle import reference
from syncverify.properties import check
from syncverify.rank_program import play
from syncverify.recorder import Recorder
from syncverify.run import RankRun, Run
from syncverify.scenario import Scenario
from syncverify.sim.threaded_world import thread_local_world
from syncverify.subject import Subject


class BrokenRunError(Exception):
    """A player did not do what it is measured at."""


def play_simulated(scenarios: Sequence[Scenario], subject: Subject) -> None:
    """Run and judge on `sim`, as a search does, and with nothing judged before."""
    reference.cache_clear()
    backend = SimBackend()
    for scenario in scenarios:
        judge(scenario, backend.run(scenario, subject), subject)


def judge(scenario: Scenario, run: Run, subject: Subject) -> None:
    """Check all properties.

    Raises:
        BrokenRunError: One does not hold, so that something else was measured.
    """
    found = check(scenario, run, subject.capabilities)
    if found:
        raise BrokenRunError(f"{found[0].property}: {found[0].summary}")


def play_threaded(scenarios: Sequence[Scenario], subject: Subject) -> None:
    """Run the rank programs on torch's threaded process group, and check nothing."""
    for scenario in scenarios:
        _run_threads(scenario, subject)


def play_spawned(scenarios: Sequence[Scenario], subject: Subject) -> None:
    """Start new gloo processes for every scenario."""
    for scenario in scenarios:
        with closing(GlooBackend()) as backend:
            play_on(backend, [scenario], subject)


def play_on(
    backend: GlooBackend, scenarios: Sequence[Scenario], subject: Subject
) -> None:
    """Run on processes that stay, and judge nothing.

    Raises:
        BrokenRunError: A run did not reach its end.
    """
    for scenario in scenarios:
        fault = backend.run(scenario, subject).fault
        if fault is not None:
            raise BrokenRunError(fault.summary)


def seconds_of_cores(step: Callable[[], object]) -> float:
    """Return the CPU time that a step takes in this process and its live children."""
    before = _cpu_seconds()
    step()
    return _cpu_seconds() - before


def _cpu_seconds() -> float:
    return time.process_time() + sum(map(_cpu_seconds_of, _children()))


def _children() -> list[int]:
    listed: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        listed += map(int, (task / "children").read_text().split())
    return listed


def _cpu_seconds_of(pid: int) -> float:
    # What clock_getcpuclockid(3) makes of a process: all of its threads, to the nanosecond.
    return time.clock_gettime((~pid << 3) | 2)


def _run_threads(scenario: Scenario, subject: Subject) -> None:
    num_ranks, store = scenario.mesh.num_ranks, dist.HashStore()
    failures: list[BaseException] = []

    def program(rank: int) -> None:
        try:
            _play_threaded_rank(scenario, subject, rank, store)
        except Exception as error:  # noqa: BLE001  # raised below
            failures.append(error)

    with thread_local_world():  # which also registers the `threaded` backend
        threads = [
            threading.Thread(target=program, args=(rank,), daemon=True)
            for rank in range(num_ranks)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise BrokenRunError(f"on threads: {failures[0]!r}") from failures[0]


def _play_threaded_rank(
    scenario: Scenario, subject: Subject, rank: int, store: dist.Store
) -> None:
    world_size = scenario.mesh.num_ranks
    dist.init_process_group("threaded", rank=rank, world_size=world_size, store=store)
    try:
        play(
            scenario,
            subject,
            rank=rank,
            device=torch.device("cpu"),
            result=RankRun(),
            recorder=Recorder(),  # of calls alone: nothing tells it of collectives
        )
    finally:
        dist.destroy_process_group()
