"""Replicas that differ before training are refused, or made equal on request."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    PlanMismatchError,
    SynchronizerConfig,
)
from tests.programs import placed


@pytest.mark.parametrize("policy", ["broadcast", "keep"])
def test_parameters_and_buffers_of_the_lowest_rank_go_to_all(
    ranks, policy: Any
) -> None:
    def program(rank: int) -> list[Any]:
        module = nn.BatchNorm1d(2)  # three buffers, one of them of integers
        module.num_batches_tracked.fill_(rank + 1)
        for each in (*module.parameters(), module.running_mean):
            nn.init.constant_(each, rank + 1)
        module.bias.requires_grad_(False)
        config = SynchronizerConfig(
            process_group=dist.group.WORLD, unequal_replicas=policy
        )
        with GradientSynchronizer.from_module(module, 1, 1, config=config) as sums:
            if policy == "keep":
                assert module.weight[0] == rank + 1
                sums.broadcast_replicas()
        return [each.flatten()[0].item() for each in module.state_dict().values()]

    assert ranks.run(2, program) == [[1, 1, 1, 1, 1]] * 2


@pytest.mark.slow
def test_shards_go_along_the_axes_that_replicate_them(ranks) -> None:
    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        local = torch.full((2,), float(rank))
        group = [
            placed(local.clone(), mesh, *each)
            for each in (
                (Replicate(), Shard(0)),
                (Replicate(), Replicate()),
                (Shard(0), Shard(0)),
            )
        ]
        group.append(nn.Parameter(local.clone()))  # plain, without a process group
        config = SynchronizerConfig(
            axis_reductions={"tp": "none"}, unequal_replicas="keep"
        )
        with GradientSynchronizer([group], 1, 1, config=config) as sums:
            sums.broadcast_replicas()
        locals_ = [p.to_local() if isinstance(p, DTensor) else p for p in group]
        return [each[0].item() for each in locals_]

    found = ranks.run(4, program)
    assert found == [[rank % 2, 0, rank, rank] for rank in range(4)]


NAN = float("nan")
EQUAL = torch.tensor([[1.0, NAN], [-0.0, 2.0]])


def bound(ranks, size: int, make: Any) -> list[str]:
    """Bind the parameters by name, and the config, that `make(rank)` returns; list the errors."""

    def program(rank: int) -> str:
        named, config = make(rank)
        names = {parameter: name for name, parameter in named.items()}
        sums = GradientSynchronizer(
            [[*names]], 1, 1, parameter_names=names, config=config
        )
        try:
            sums.bind()
        except PlanMismatchError as error:
            return str(error)
        sums.unbind()
        return ""

    found: list[str] = ranks.run(size, program)
    return found


DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


@pytest.mark.parametrize("other", [3.0, NAN, 0.0])
def test_unequal_replicas_are_refused_by_name(ranks, other: float) -> None:
    """Also one NaN for a number, or 0 for -0, among parameters of several dtypes."""

    def make(rank: int) -> Any:
        named = {str(dtype): EQUAL.to(dtype, copy=True) for dtype in DTYPES}
        named["transposed"] = EQUAL.clone().t()
        named["empty"], named["scalar"] = torch.zeros(0, 2), torch.tensor(1.0)
        if rank == 2:
            named["torch.bfloat16"][1, 0] = other
        parameters = {name: nn.Parameter(each) for name, each in named.items()}
        return parameters, SynchronizerConfig(process_group=dist.group.WORLD)

    errors = [each.splitlines() for each in bound(ranks, 3, make)]
    assert {lines[0] for lines in errors} == {
        "replicas of torch.bfloat16 are unequal: ranks that sum its gradient would train apart"
    }
    assert [lines[3].rpartition("unlike ")[2] for lines in errors] == [
        "rank 2", "rank 2", "rank 0, 1"
    ]  # fmt: skip
    assert 'SynchronizerConfig(unequal_replicas="broadcast")' in errors[0][4]


def test_parameters_without_memory_have_their_own_refusal(ranks) -> None:
    def make(_: int) -> Any:
        parameter = nn.Parameter(torch.zeros(2, device="meta"))
        return {"p": parameter}, SynchronizerConfig(process_group=dist.group.WORLD)

    with pytest.raises(InvalidArgumentError, match="p has no memory"):
        bound(ranks, 2, make)


def test_equal_replicas_bind_with_shards_that_differ(ranks) -> None:
    """Compared are the ranks of a sum: not those of shards, and not those of the reduction "none"."""

    def make(rank: int) -> Any:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        tp = float(mesh.get_local_rank("tp"))
        locals_ = {
            "sharded": (torch.full((2,), tp), (Replicate(), Shard(0))),
            "replicated": (torch.full((2,), tp), (Replicate(), Replicate())),
            "empty": (torch.full((1 - int(tp),), 1.0), (Replicate(), Shard(0))),
            "alone": (torch.full((2,), float(rank)), (Shard(0), Shard(0))),
        }
        named = {
            name: placed(local, mesh, *each) for name, (local, each) in locals_.items()
        }
        named["ordinary"] = nn.Parameter(torch.full((2,), float(rank)))
        return named, SynchronizerConfig(axis_reductions={"tp": "none"})

    assert bound(ranks, 4, make) == [""] * 4
