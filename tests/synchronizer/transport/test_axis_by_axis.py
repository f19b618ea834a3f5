"""Tiny buckets over several mesh axes go axis by axis, with the groups of the mesh."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify import synchronizer
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.plan.axis_by_axis import AXIS_BY_AXIS_BYTES

SMALL = AXIS_BY_AXIS_BYTES // 4
KIB_MB = 2**-10


def parameter(mesh: DeviceMesh, *placements: Any, numel: int = 512) -> nn.Parameter:
    local = torch.zeros(numel)
    return nn.Parameter(DTensor.from_local(local, mesh, placements, run_check=False))


def accumulate(parameter: nn.Parameter, value: float) -> None:
    local = parameter.to_local()
    (local * torch.arange(local.numel()) * value).sum().backward()


def holds(parameter: nn.Parameter, value: float) -> bool:
    local = parameter.grad.to_local()
    return torch.equal(local, torch.arange(local.numel()) * value)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Every all-reduce of rank 0: its ranks, elements, and the call that launched it."""
    seen: list[tuple[Any, ...]] = []
    all_reduce = dist.all_reduce

    def observed(tensor: torch.Tensor, *, group: Any, async_op: bool) -> Any:
        if dist.get_rank() == 0:
            ranks = tuple(dist.get_process_group_ranks(group))
            during = torch._C._current_graph_task_id() != -1
            seen.append((ranks, tensor.numel(), "backward" if during else "wait"))
        return all_reduce(tensor, group=group, async_op=async_op)

    monkeypatch.setattr(dist, "all_reduce", observed)
    return seen


@pytest.mark.parametrize(
    ("numel", "expected"),
    [
        (SMALL, [((0, 2), SMALL, "backward"), ((0, 1), SMALL, "wait")]),
        (SMALL + 32, [((0, 1, 2, 3), SMALL + 32, "backward")]),
    ],
)
def test_the_size_decides_and_only_needed_groups_are_made(
    ranks, launches, numel, expected
) -> None:
    def program(rank: int) -> int:
        mesh = init_device_mesh("cpu", (2, 2))
        a = parameter(mesh, Replicate(), Replicate(), numel=numel)
        num_groups = len(dist.distributed_c10d._world.pg_names)
        with GradientSynchronizer([[a]], 1, 1) as sums:
            accumulate(a, 2**rank)
            sums.wait()
            assert holds(a, 0b1111)
            return len(dist.distributed_c10d._world.pg_names) - num_groups

    assert ranks.run(4, program) == [len(expected) == 1] * 4
    assert launches == expected


@pytest.mark.slow
def test_later_axes_are_launched_in_launch_order(ranks, launches) -> None:
    """Three axes, and a bucket of one axis in between."""

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2, 2))
        all_axes = [Replicate()] * 3
        a = parameter(mesh, *all_axes, numel=2000)
        b = parameter(mesh, Shard(0), Replicate(), Shard(0), numel=1000)
        c = parameter(mesh, Replicate(), Replicate(), Shard(0), numel=500)
        with GradientSynchronizer([[a, b, c]], KIB_MB, 1) as sums:
            for each in (c, b, a):
                accumulate(each, 2**rank)
            sums.wait()
            x, y = (1 << rank % 2) * 0b01010101, (0b101 << (rank & 5)) & 0xFF
            assert (holds(a, 0xFF), holds(b, y), holds(c, x)) == (True, True, True)

    ranks.run(8, program)
    assert launches == [
        ((0, 4), 512, "backward"),
        ((0, 2), 1024, "backward"),
        ((0, 4), 2016, "backward"),
        ((0, 2), 512, "wait"),
        ((0, 2), 2016, "wait"),
        ((0, 1), 2016, "wait"),
    ]


@pytest.mark.parametrize("limit_bytes", [0, 2**40])
def test_both_ways_give_the_same_bits(ranks, monkeypatch, limit_bytes) -> None:
    monkeypatch.setattr(
        synchronizer.plan.axis_by_axis, "AXIS_BY_AXIS_BYTES", limit_bytes
    )

    def program(rank: int) -> list[torch.Tensor]:
        mesh = init_device_mesh("cpu", (2, 2))
        group = [parameter(mesh, Replicate(), Replicate()) for _ in range(3)]
        config = SynchronizerConfig(unused="keep_none")
        with GradientSynchronizer([group], KIB_MB, 1, config=config) as sums:
            (group[0].to_local() * torch.arange(512) * 3**rank).sum().backward()
            sums.wait(scale=0.5)
            assert [each.grad is None for each in group] == [False, True, True]
            assert holds(group[0], 20)

    ranks.run(4, program)


def test_a_step_that_is_given_up_launches_no_further_axis(ranks, launches) -> None:
    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2))
        a, b = (parameter(mesh, Replicate(), Replicate()) for _ in "ab")
        sums = GradientSynchronizer([[a, b]], KIB_MB, 1)
        sums.bind()
        accumulate(b, 1)
        sums.reset()
        for each in (b, a):
            accumulate(each, 2**rank)
        sums.wait()
        assert holds(a, 0b1111)
        assert holds(b, 0b1111)
        sums.unbind()

    ranks.run(4, program)
    assert [launch[2] for launch in launches] == ["backward"] * 3 + ["wait"] * 2
