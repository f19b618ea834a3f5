"""Stalls with NCCL: a host goes on in `wait()`, and a stream stands still."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from syncverify import simulate
from syncverify.simulation.simulation import Simulation


def _store() -> dist.Store:
    store: dist.Store = dist.distributed_c10d._get_default_store()
    return store


def _total() -> torch.Tensor:
    dist.all_reduce(total := torch.ones(2, device="cuda"))
    return total


def tells_after_a_collective(rank: int) -> None:
    """Legal with NCCL: the host of rank 0 goes on, and tells rank 1."""
    if rank == 0:
        _total()
        _store().set("told", "")
    else:
        _store().wait(["told"])
        _total()


def reads_before_it_tells(rank: int) -> None:
    if rank == 0:
        if _total().sum().item() == 4:
            _store().set("told", "")
    else:
        _store().wait(["told"])
        _total()


def polls_before_it_tells(rank: int) -> None:
    if rank == 0:
        _total()
        event = torch.cuda.Event()
        event.record()
        while not event.query():
            pass
        _store().set("told", "")
    else:
        _store().wait(["told"])
        _total()


def waits_on_other_streams(rank: int) -> None:
    """Legal with NCCL: no stream that waits holds a collective."""
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    ordered = groups if rank else groups[::-1]
    for group in ordered:
        work = dist.all_reduce(torch.ones(2, device="cuda"), group=group, async_op=True)
        with torch.cuda.stream(torch.cuda.Stream()):
            assert work is not None
            work.wait()


@pytest.mark.parametrize(
    "program",
    [
        tells_after_a_collective,
        reads_before_it_tells,
        polls_before_it_tells,
        waits_on_other_streams,
    ],
)
def test_a_stall_of_hosts_alone_is_no_deadlock_with_nccl(
    program: Callable[[int], None],
) -> None:
    simulation = simulate(program, 2)
    assert simulation.violations == ()
    assert "with NCCL it blocks a stream alone" in simulation.refused
    assert "rank 1: waits for" in simulation.refused


def _causes(simulation: Simulation) -> list[str]:
    assert simulation.refused == ""
    return [found.violation.cause for found in simulation.violations]


def test_a_stall_of_hosts_alone_is_a_deadlock_with_gloo() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            dist.all_reduce(torch.ones(2))
            _store().set("told", "")
        else:
            _store().wait(["told"])
            dist.all_reduce(torch.ones(2))

    assert _causes(simulate(program, 2, device="cpu")) == ["deadlock"]


def waits_in_a_circle_of_streams(rank: int) -> None:
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    ordered = groups if rank else groups[::-1]
    for group in ordered:
        dist.all_reduce(torch.ones(2, device="cuda"), group=group)


def reads_in_a_circle_of_streams(rank: int) -> float:
    waits_in_a_circle_of_streams(rank)
    return torch.ones(2, device="cuda").sum().item()


def waits_for_a_key_that_nobody_sets(rank: int) -> None:
    if rank == 0:
        _total()
    _store().wait(["told"])
    _total()


def waits_for_a_rank_that_has_ended(rank: int) -> float:
    return _total().sum().item() if rank else 0.0


def issues_a_collective_of_one_rank(rank: int) -> None:
    """The second collective is issued by rank 1 alone, as soon as hosts go on."""
    tells_after_a_collective(rank)
    if rank:
        _total()


def tells_after_a_barrier(rank: int) -> None:
    if rank == 0:
        dist.barrier()
        _store().set("told", "")
    else:
        _store().wait(["told"])
        dist.barrier()


def asks_gloo(rank: int) -> None:
    group = dist.new_group([0, 1], backend="gloo")
    if rank == 0:
        dist.all_reduce(torch.ones(2), group=group)
        _store().set("told", "")
    else:
        _store().wait(["told"])
        dist.all_reduce(torch.ones(2), group=group)


@pytest.mark.parametrize(
    "program",
    [
        waits_in_a_circle_of_streams,
        reads_in_a_circle_of_streams,
        waits_for_a_key_that_nobody_sets,
        waits_for_a_rank_that_has_ended,
        issues_a_collective_of_one_rank,
        tells_after_a_barrier,
        asks_gloo,
    ],
)
def test_devices_that_stand_still_are_a_deadlock(
    program: Callable[[int], object],
) -> None:
    assert "deadlock" in _causes(simulate(program, 2))
