"""Sums over gloo itself, by programs of several ranks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.programs import parameter

KIB_MB = 2**-10


def accumulate(parameter: nn.Parameter, scale: float) -> None:
    """Contribute scale * (0, 1, 2, ...): a gradient in which positions matter."""
    local = parameter.to_local()
    (local * torch.arange(local.numel()) * scale).sum().backward()


def holds(parameter: nn.Parameter, scale: float) -> bool:
    local = parameter.grad.to_local()
    return torch.equal(local, torch.arange(local.numel()) * scale)


def ranks_are_in_different_numbers_of_groups(rank: int) -> None:
    if rank < 2:
        dist.new_group([0, 1], use_local_synchronization=True)
    mesh = init_device_mesh("cpu", (1, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    a = parameter(mesh, Replicate(), Replicate(), Replicate(), numel=2**15)
    with GradientSynchronizer([[a]], 1, 1) as sums:
        accumulate(a, 2**rank)
        sums.wait()
        assert holds(a, 0b1111)


def sums_are_scattered_and_measured(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    group = [parameter(mesh, Replicate(), numel=256 + 32 * i) for i in range(4)]
    group.append(parameter(mesh, Shard(0), numel=64))
    config = SynchronizerConfig(mode="reduce_scatter", check_finite=True)
    with GradientSynchronizer([group], KIB_MB, 1, config=config) as sums:
        for _ in range(2):
            ordered = group if rank else group[::-1]
            for each in ordered:
                accumulate(each, 2**rank)
            sums.wait()
            owned = sums.owned_grads()
            for each in owned:
                factor = 2**rank if each.parameter is group[-1] else 3
                stop = each.start_numel + each.values.numel()
                expected = torch.arange(each.start_numel, stop) * factor
                assert torch.equal(each.values, expected.float())
            # Sums of the squares of 0, 1, ..., n - 1.
            squares = [(n - 1) * n * (2 * n - 1) // 6 for n in (256, 288, 320, 352, 64)]
            total = 9 * sum(squares[:4]) + (1 + 4) * squares[4]
            assert abs(sums.grad_norm().item() / total**0.5 - 1) < 400 * 2**-24
            assert len(sums.logging_data()["buckets"]) == 5
            sums.zero_grad()


def a_comm_hook_reduces(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    group = [parameter(mesh, Replicate(), numel=60 + i) for i in range(4)]
    config = SynchronizerConfig(comm_hook=bf16_error_feedback)
    with GradientSynchronizer([group], KIB_MB, 1, config=config) as sums:
        for _ in range(2):
            for each in group:
                accumulate(each, 2**rank)  # sums of up to 3 * 63 < 2**8
            sums.wait()
            assert all(holds(each, 3) for each in group)
            sums.zero_grad()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_ranks", "program"),
    [
        (4, ranks_are_in_different_numbers_of_groups),
        (2, sums_are_scattered_and_measured),
        (2, a_comm_hook_reduces),
    ],
)
def test_sums_over_gloo_are_exact(ranks, num_ranks, program) -> None:
    ranks.run(num_ranks, program, backend="gloo")
