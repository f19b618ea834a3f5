"""Experts that each `tp` rank has whole are reduced over the group of dense layers."""

from __future__ import annotations

from functools import partial

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.by_hand import joins, splits, summed
from tests.syncverify.whole_step.reports.mixture import Mixture, average, loss

layouts = ["dp=2,tp=2"]


def parallelize(model: Mixture, mesh: DeviceMesh) -> None:
    """Give each `tp` rank a part of the rows, and all experts."""
    group = mesh.get_group("tp")
    model.rows_in = model.scores_in = partial(splits, group=group)
    model.rows_out = partial(joins, group=group)


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Reduce gradients, and step."""
    loss(model, batch).backward()
    if is_repaired:
        assert model.experts.grad is not None
        model.experts.grad = summed(model.experts.grad, mesh.get_group("tp"))
    average(model.parameters(), mesh.get_group("dp"))
    optimizer.step()
    optimizer.zero_grad()
