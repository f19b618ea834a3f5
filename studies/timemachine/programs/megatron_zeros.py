"""Megatron's number of zeros in gradients, which Megatron-FSDP shards and may keep apart."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.optimizer.clip_grads import count_zeros_fp32
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw gradients of each rank, and whether they are in `decoupled_grad`."""
    ranks = random.randint(1, 4)
    parameters = random.randint(1, 3)
    return {
        "ranks": ranks,
        "gradients": [
            [[random.randint(0, 2) for _ in range(2)] for _ in range(parameters)]
            for _ in range(ranks)
        ],
        "is_decoupled": random.random() < 0.5,
    }


def program(rank: int, *, gradients: list[list[list[int]]], is_decoupled: bool) -> None:
    """Compare the number of zeros with that of all ranks' shards."""
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    parameters = [
        sharded(mesh, each, is_decoupled=is_decoupled) for each in gradients[rank]
    ]
    zeros = count_zeros_fp32(
        parameters, dist.group.WORLD, is_decoupled, tp_group=dist.group.WORLD
    )
    every = torch.tensor(gradients)
    expected = torch.tensor((every == 0).sum().item())
    check_equal(f"number of zeros on rank {rank}", torch.tensor(zeros), expected)


def sharded(
    mesh: Any, gradient: list[int], *, is_decoupled: bool
) -> torch.nn.Parameter:
    """Return a parameter as Megatron-FSDP leaves it: a shard, with the gradient of the shard."""
    local = torch.tensor(gradient, dtype=torch.float32, device="cuda")
    parameter = torch.nn.Parameter(
        DTensor.from_local(torch.ones_like(local), mesh, [Shard(0)])
    )
    name = "decoupled_grad" if is_decoupled else "grad"
    setattr(parameter, name, DTensor.from_local(local, mesh, [Shard(0)]))
    vars(parameter)["__fsdp_param__"] = True
    return parameter
