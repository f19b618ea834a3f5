"""torchtitan's norm of gradients, of which some belong to experts."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torchtitan.distributed.utils import clip_grad_norm_

from studies.timemachine.comparing import check_equal


def draw(random: Random) -> dict[str, Any]:
    """Draw gradients of each rank, which of them are of experts, and the norm."""
    ranks = random.randint(1, 4)
    experts = [random.random() < 0.5 for _ in range(random.randint(1, 3))]
    return {
        "ranks": ranks,
        "seed": random.randrange(1000),
        "experts": experts,
        "power": random.choice([1.0, 2.0, float("inf")]),
    }


def program(rank: int, *, seed: int, experts: list[bool], power: float) -> None:
    """Compare the norm, and the clipped gradients, with those of plain numbers."""
    ranks = dist.get_world_size()
    made = torch.Generator().manual_seed(seed)
    gradients = torch.randn(ranks, len(experts), 2, generator=made)
    parameters = [
        _sharded("ep" if each else "fsdp", gradient)
        for each, gradient in zip(experts, gradients[rank], strict=True)
    ]
    norm = clip_grad_norm_(parameters, 0.5, power, ep_enabled=True)
    right = gradients.flatten().norm(power)
    check_equal(f"norm on rank {rank}", norm.cpu(), right)
    clipped = torch.stack([each.grad.to_local() for each in parameters])
    scale = min(1.0, 0.5 / right.item())
    check_equal(f"gradients on rank {rank}", clipped.cpu(), gradients[rank] * scale)


def _sharded(axis: str, gradient: torch.Tensor) -> Any:
    """Return a parameter on the mesh of an axis, with the gradient of this rank's shard."""
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=(axis,))
    local = gradient.to("cuda", copy=True)
    whole = DTensor.from_local(torch.ones_like(local), mesh, [Shard(0)])
    parameter = torch.nn.Parameter(whole)
    parameter.grad = DTensor.from_local(local, mesh, [Shard(0)])
    return parameter
