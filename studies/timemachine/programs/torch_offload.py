"""FSDP2 with gradients on the host, and an optimizer that runs in backward."""

from random import Random
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard


def draw(random: Random) -> dict[str, Any]:
    """Draw layers, and whether the optimizer runs in backward."""
    return {
        "ranks": random.randint(1, 3),
        "widths": [random.randint(1, 4) for _ in range(random.randint(2, 4))],
        "is_in_backward": random.random() < 0.5,
    }


def program(rank: int, *, widths: list[int], is_in_backward: bool) -> None:
    """Train two steps."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    model = nn.Sequential(*map(nn.Linear, widths, widths[1:]))
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(parameter: Any) -> None:
        with torch.no_grad():
            parameter.to_local().sub_(parameter.grad.to_local() * 0.1)
        parameter.grad = None

    if is_in_backward:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        model(torch.ones(2, widths[0], device="cuda")).sum().backward()
        if not is_in_backward:
            optimizer.step()
            optimizer.zero_grad()
