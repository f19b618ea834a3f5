"""Gradients are never cleared."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.mixture import Mixture, average, loss


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Average, and step."""
    loss(model, batch).backward()
    average(model.parameters(), mesh.get_group("dp"))
    optimizer.step()
    if is_repaired:
        optimizer.zero_grad()
