"""Clipping is given gradients where it expects parameters, so it scales nothing."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.mixture import Mixture, average, loss

clip = 0.1


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> dict[str, torch.Tensor]:
    """Average, clip, and step."""
    loss(model, batch).backward()
    average(model.parameters(), mesh.get_group("dp"))
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    clipped = [*model.parameters()] if is_repaired else gradients
    nn.utils.clip_grads_with_norm_(clipped, clip, norm)
    optimizer.step()
    optimizer.zero_grad()
    return {"norm": norm}
