"""d9d's division of gradients by the weight of the loss, also of parameters that are not reduced."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from d9d.loop.component.gradient_manager import GradientManager
from d9d.loop.config import GradientManagerConfig
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from studies.timemachine.comparing import check_equal

_ALONE = SimpleNamespace(mesh_params=SimpleNamespace(is_distributed=False))


def draw(random: Random) -> dict[str, Any]:
    """Draw placements of parameters, and weights of micro-batches."""
    ranks = random.randint(1, 3)
    return {
        "ranks": ranks,
        "sharded": [random.random() < 0.5 for _ in range(random.randint(1, 3))],
        "weights": [random.randint(1, 4) for _ in range(random.randint(1, 3))],
    }


def program(rank: int, *, sharded: list[bool], weights: list[int]) -> None:
    """Compare gradients after a step with their sum over the weight of the loss."""
    mesh = init_device_mesh(
        "cuda", (torch.distributed.get_world_size(),), mesh_dim_names=("dp",)
    )
    module = nn.ParameterList(
        nn.Parameter(
            DTensor.from_local(
                torch.ones(2, device="cuda"), mesh, [Shard(0) if each else Replicate()]
            )
        )
        for each in sharded
    )
    manager = GradientManager(
        _ALONE,
        SimpleNamespace(modules=[module]),
        GradientManagerConfig(grad_dtype=None, bucket_size_mb=1),
    )
    with manager.install():
        manager.set_required_accumulations(len(weights))
        for weight in weights:
            loss = sum(each.to_local().sum() for each in module) * weight
            manager.add_loss_with_weight(
                loss, torch.tensor(float(weight), device="cuda")
            )
            loss.backward()
        manager.sync_and_scale()
        for number, (parameter, is_local) in enumerate(
            zip(module, sharded, strict=True)
        ):
            count = 1 if is_local else mesh.size()
            right = torch.full((2,), float(count))
            seen = parameter.grad.to_local().cpu()
            check_equal(f"gradient of parameter {number} on rank {rank}", seen, right)
