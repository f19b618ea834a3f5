"""Stalls with NCCL: a host goes on in `wait()`, and a stream stands still."""

import functools
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from syncverify import simulate
from syncverify.faces.simulation.simulation import Simulation


def _store() -> dist.Store:
    return dist.distributed_c10d._get_default_store()


def _total() -> torch.Tensor:
    dist.all_reduce(total := torch.ones(2, device="cuda"))
    return total


def _tells(
    of_first: Callable[[], object], of_second: Callable[[], object] = _total
) -> Callable[[int], None]:
    """Make a program: rank 0 calls a function, then tells rank 1, which calls another one."""

    def program(rank: int) -> None:
        if rank == 0:
            of_first()
            _store().set("told", "")
        else:
            _store().wait(["told"])
            of_second()

    return program


def _reads() -> None:
    assert _total().sum().item() == 4


def _polls() -> None:
    _total()
    event = torch.cuda.Event()
    event.record()
    while not event.query():
        pass


def waits_on_other_streams(rank: int) -> None:
    """Legal with NCCL: no stream that waits holds a collective."""
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    ordered = groups if rank else groups[::-1]
    for group in ordered:
        work = dist.all_reduce(torch.ones(2, device="cuda"), group=group, async_op=True)
        with torch.cuda.stream(torch.cuda.Stream()):
            work.wait()


@pytest.mark.parametrize(
    "program",
    [
        _tells(_total),  # with NCCL the host of rank 0 goes on, and tells rank 1
        _tells(_reads),
        _tells(_polls),
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


def _total_of_hosts() -> None:
    dist.all_reduce(torch.ones(2))


def test_a_stall_of_hosts_alone_is_a_deadlock_with_gloo() -> None:
    program = _tells(_total_of_hosts, _total_of_hosts)
    assert _causes(simulate(program, 2, device="cpu")) == ["deadlock"]


def waits_in_a_circle_of_streams(rank: int) -> None:
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    ordered = groups if rank else groups[::-1]
    for group in ordered:
        dist.all_reduce(torch.ones(2, device="cuda"), group=group)


def waits_for_a_key_that_nobody_sets(rank: int) -> None:
    if rank == 0:
        _total()
    _store().wait(["told"])
    _total()


def waits_for_a_rank_that_has_ended(rank: int) -> float:
    return _total().sum().item() if rank else 0.0


def issues_a_collective_of_one_rank(rank: int) -> None:
    """The second collective is issued by rank 1 alone, as soon as hosts go on."""
    _tells(_total)(rank)
    if rank:
        _total()


def asks_gloo(rank: int) -> None:
    group = dist.new_group([0, 1], backend="gloo")
    total = functools.partial(dist.all_reduce, torch.ones(2), group=group)
    _tells(total, total)(rank)


@pytest.mark.parametrize(
    "program",
    [
        waits_in_a_circle_of_streams,
        waits_for_a_key_that_nobody_sets,
        waits_for_a_rank_that_has_ended,
        issues_a_collective_of_one_rank,
        asks_gloo,
    ],
)
def test_devices_that_stand_still_are_a_deadlock(
    program: Callable[[int], object],
) -> None:
    assert "deadlock" in _causes(simulate(program, 2))
