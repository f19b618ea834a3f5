"""Megatron's norm of gradients that Megatron-FSDP shards and may keep apart."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.optimizer.optimizer import FP32Optimizer
from torch.distributed.device_mesh import init_device_mesh

from studies.timemachine.comparing import check_equal
from studies.timemachine.programs import megatron_zeros


def draw(random: Random) -> dict[str, Any]:
    """Draw gradients of each rank, and whether they are in `decoupled_grad`."""
    return megatron_zeros.draw(random)


def program(rank: int, *, gradients: list[list[list[int]]], is_decoupled: bool) -> None:
    """Compare the norm with that of all ranks' shards."""
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    parameters = [
        megatron_zeros.sharded(mesh, each, is_decoupled=is_decoupled)
        for each in gradients[rank]
    ]
    for each in parameters:
        vars(each)["tensor_model_parallel"] = True
    config = SimpleNamespace(
        use_precision_aware_optimizer=is_decoupled,
        use_precision_aware_optimizer_no_fp8_or_ds_fp8=is_decoupled,
    )
    optimizer = FP32Optimizer(
        torch.optim.SGD(parameters, lr=0.1), config, lambda _: None
    )
    optimizer.grad_stats_parallel_group = dist.group.WORLD
    optimizer.tp_group = dist.group.WORLD
    expected = torch.tensor(gradients, dtype=torch.float32).norm()
    check_equal(
        f"norm on rank {rank}", torch.tensor(optimizer.get_grad_norm()), expected
    )
