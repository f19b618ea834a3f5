"""Experts are divided by the number of ranks of an axis different from the one that adds them."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.mixture import (
    Mixture,
    average,
    loss,
    send_rows,
)

layouts = ["dp=1,gtp=4"]
split = ["dp", "gtp"]
own = {"experts": {"gtp": 0}}


def parallelize(model: Mixture, mesh: DeviceMesh) -> None:
    """Give each rank of `gtp` its own experts."""
    send_rows(model, mesh.get_group("gtp"))


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Average over `dp`, then dense layers over `gtp`, which was carved out of it."""
    loss(model, batch).backward()
    average(model.parameters(), mesh.get_group("dp"))
    average(model.dense(), mesh.get_group("gtp"))
    if is_repaired:
        assert model.experts.grad is not None
        model.experts.grad /= mesh["gtp"].size()
    optimizer.step()
    optimizer.zero_grad()
