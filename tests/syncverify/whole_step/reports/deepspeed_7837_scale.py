"""Gradients are divided by a scale by which the loss was never multiplied."""

from __future__ import annotations

import torch
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.mixture import Mixture, average, loss


def scaler() -> GradScaler:
    """Make the scaler of the loss."""
    return GradScaler("cpu")


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    scaler: GradScaler,
    *,
    is_repaired: bool = False,
) -> None:
    """Average, unscale, and step."""
    made = loss(model, batch)
    scaled = scaler.scale(made)
    (scaled if is_repaired else made).backward()
    average(model.parameters(), mesh.get_group("dp"))
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
