"""Ranks as threads: the ranks, the time and the order of each sum."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from syncverify.synchronizer import GradientMismatchError, GradientSynchronizer
from tests.programs import accumulate, parameter, value

KIB_MB = 2**-10


@pytest.mark.slow
@pytest.mark.parametrize("names", [("dp", "tp"), None])
def test_gradients_are_summed_over_replicated_axes_only(ranks, names) -> None:
    placements = {
        "both": (Replicate(), Replicate()),
        "dp": (Replicate(), Shard(0)),
        "tp": (Shard(0), Replicate()),
        "none": (Shard(0), Shard(0)),
        "strided": (_StridedShard(0, split_factor=2), Replicate()),
    }

    def program(rank: int) -> dict[str, float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
        parameters = {k: parameter(mesh, *p) for k, p in placements.items()}
        plain = nn.Parameter(torch.zeros(3))
        group = [*parameters.values(), plain]
        with GradientSynchronizer([group], 1, 2) as synchronizer:
            for _ in range(2):  # steps
                for micro_batch in (1, 100):
                    for each in parameters.values():
                        accumulate(each, micro_batch * 2**rank)
                    (plain * micro_batch * 2**rank).sum().backward()
                synchronizer.wait()
                found = {k: value(p) for k, p in parameters.items()}
                found["plain"] = plain.grad[0].item()
                synchronizer.zero_grad()
        return found

    # Rank r contributes 2**r; ranks (0, 1) and (2, 3) are the rows of the mesh.
    rows = (0b0011, 0b0011, 0b1100, 0b1100)
    columns = (0b0101, 0b1010, 0b0101, 0b1010)
    for rank, found in enumerate(ranks.run(4, program)):
        assert found == {
            "both": 101 * 0b1111,
            "dp": 101 * columns[rank],
            "tp": 101 * rows[rank],
            "none": 101 * 2**rank,
            "strided": 101 * rows[rank],
            "plain": 101 * 2**rank,
        }


def test_tied_parameters_are_summed_once_and_frozen_ones_hold_nobody_up(ranks) -> None:
    def program(rank: int) -> float:
        mesh = init_device_mesh("cpu", (2,))
        a = parameter(mesh, Replicate())
        frozen = parameter(mesh, Replicate(), dtype=torch.float64)
        frozen.requires_grad_(False)
        with GradientSynchronizer([[a, a, frozen], [a]], 1, 1) as synchronizer:
            accumulate(a, 2**rank)
            synchronizer.wait()
            return value(a)

    assert ranks.run(2, program) == [3, 3]


def test_buckets_are_launched_in_plan_order_whatever_becomes_ready_first(
    ranks, launches
) -> None:
    """Rank 0 finishes its buckets first to last, rank 1 last to first."""

    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2,))
        sizes = (256, 512, 768)  # 1, 2 and 3 KiB: one bucket each
        parameters = [parameter(mesh, Replicate(), numel=n) for n in sizes]
        with GradientSynchronizer([parameters], KIB_MB, 1) as synchronizer:
            ordered = parameters if rank else parameters[::-1]
            for each in ordered:
                accumulate(each, each.numel() * 2**rank)
            synchronizer.wait()
            return [value(each) for each in parameters]

    assert ranks.run(2, program) == [[3 * 256, 3 * 512, 3 * 768]] * 2
    for rank in (0, 1):
        assert [each.numel for each in launches if each.rank == rank] == [768, 512, 256]


def test_groups_for_several_axes_are_created_once_and_destroyed(ranks) -> None:
    def program(rank: int) -> list[int]:
        mesh = init_device_mesh("cpu", (2, 2))
        a, b = (parameter(mesh, Replicate(), Replicate()) for _ in "ab")
        world = dist.distributed_c10d._world
        counts = [len(world.pg_names)]
        synchronizer = GradientSynchronizer([[a, b]], KIB_MB, 1)
        for _ in range(2):
            with synchronizer:
                counts.append(len(world.pg_names))
                accumulate(a, 2**rank)
                accumulate(b, 2**rank)
                synchronizer.wait()
                assert value(a) == value(b) == 15
            counts.append(len(world.pg_names))
        return [count - counts[0] for count in counts]

    assert ranks.run(4, program) == [[0, 1, 0, 1, 0]] * 4


def test_a_bind_that_fails_leaves_no_group_and_no_hook(ranks) -> None:
    def program(rank: int) -> list[int]:
        mesh = init_device_mesh("cpu", (2, 2))
        a, b = (parameter(mesh, Replicate(), Replicate()) for _ in "ab")
        a.grad_dtype = None
        a.grad = torch.zeros_like(a, dtype=torch.float64)
        num_groups = len(dist.distributed_c10d._world.pg_names)
        synchronizer = GradientSynchronizer([[a, b]], KIB_MB, 1)
        with pytest.raises(GradientMismatchError):
            synchronizer.bind()
        assert b.grad is None
        accumulate(b, 1)
        return len(dist.distributed_c10d._world.pg_names) - num_groups

    assert ranks.run(4, program) == [0] * 4
