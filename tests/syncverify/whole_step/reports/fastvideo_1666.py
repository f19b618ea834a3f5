"""A layer is added after the hooks that reduce gradients, and is never reduced."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh


def build(width: int = 4) -> nn.Sequential:
    """Make the model: the second layer is the one that is added."""
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))


def parallelize(
    model: nn.Sequential, mesh: DeviceMesh, *, is_repaired: bool = False
) -> nn.Module:
    """Reduce each gradient as soon as it is ready."""
    group = mesh.get_group("dp")

    def reduce(parameter: nn.Parameter) -> None:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= group.size()

    added = model.pop(-1)
    if is_repaired:
        model.append(added)
    for each in model.parameters():
        each.register_post_accumulate_grad_hook(reduce)
    if not is_repaired:
        model.append(added)
    return model
