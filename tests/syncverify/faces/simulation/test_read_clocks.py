"""Clocks of the host that decide what a program does, which is a remark."""

import pickle
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from syncverify import simulate

Program = Callable[[int], object]


def reduces_at_times(_: int) -> None:
    last = time.time()
    for _step in range(3):
        if time.time() - last > 1000:
            dist.all_reduce(torch.ones(2, device="cuda"))
            last = time.time()


def counts_nanoseconds(_: int) -> bool:
    passed = (time.perf_counter_ns() - time.perf_counter_ns()) // 1000
    return passed * 2 < 0


def takes_the_larger(_: int) -> float:
    return max(time.process_time(), time.monotonic() + 1)


@pytest.mark.parametrize(
    "program", [counts_nanoseconds, reduces_at_times, takes_the_larger]
)
def test_a_time_that_is_compared_is_a_remark(program: Program) -> None:
    simulation = simulate(program, 2)
    simulation.check()
    (remark,) = simulation.to_json()["remarks"]
    assert remark.startswith(
        "a clock decides at tests/syncverify/faces/simulation/test_read"
    )
    assert f"in {program.__name__} (ranks 0, 1): on a cluster the clocks" in remark
    assert "broadcast its choice" in remark


def prints_times(_: int) -> str:
    start = time.perf_counter()
    dist.all_reduce(torch.ones(2, device="cuda"))
    passed = time.perf_counter() - start
    return f"{passed * 1000:.1f} ms, {1 / (passed + 1):.1f} a second, {round(passed)}"


def gives_times_away(_: int) -> list[float]:
    passed = torch.tensor([time.time(), time.monotonic()], device="cuda")
    dist.all_reduce(passed)
    copies: list[float] = [pickle.loads(pickle.dumps(time.time()))]
    return [*passed.tolist(), *copies, 2.0 ** -time.time_ns()]


def lets_one_rank_decide(rank: int) -> bool:
    decided = torch.zeros(1, device="cuda")
    if rank == 0 and time.time() > 0:
        decided.fill_(1)
    dist.broadcast(decided, 0)
    return bool(decided)


@pytest.mark.parametrize(
    "program", [gives_times_away, lets_one_rank_decide, prints_times]
)
def test_a_time_that_decides_nothing_on_its_rank_is_none(program: Program) -> None:
    simulation = simulate(program, 2)
    simulation.check()
    assert simulation.remarks == ()


def test_a_pickle_has_plain_numbers() -> None:
    simulation = simulate(gives_times_away, 2)
    assert type(simulation.results[0][2]) is float


def test_clocks_are_pythons_own_after_a_run() -> None:
    before = time.time
    simulate(prints_times, 2)
    assert time.time is before
