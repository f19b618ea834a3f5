"""The norm takes the experts of the ranks for copies, and counts those of one rank."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.by_hand import summed
from tests.syncverify.whole_step.reports.mixture import (
    Mixture,
    average,
    loss,
    send_rows,
    squares,
)

layouts = ["ep=2"]
split = ["ep"]
own = {"experts": {"ep": 0}}
clip = 0.1


def parallelize(model: Mixture, mesh: DeviceMesh) -> None:
    """Give each rank its own experts."""
    send_rows(model, mesh.get_group("ep"))


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Average, clip by one norm, and step."""
    group = mesh.get_group("ep")
    loss(model, batch).backward()
    average(model.dense(), group)
    assert model.experts.grad is not None
    model.experts.grad /= group.size()
    is_counted = is_repaired or group.rank() == 0
    of_experts = summed(squares([model.experts]) * is_counted, group)
    norm = (squares(model.dense()) + of_experts).sqrt()
    nn.utils.clip_grads_with_norm_(model.parameters(), clip, norm)
    optimizer.step()
    optimizer.zero_grad()
