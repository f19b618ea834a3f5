"""The loss is multiplied by the number of processes, of which some have the same tokens."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.by_hand import summed
from tests.syncverify.whole_step.reports.mixture import Mixture, average, split_experts

layouts = ["dp=2,tp=2"]
own = {"experts": {"tp": 0}}


def parallelize(model: Mixture, mesh: DeviceMesh) -> None:
    """Split the experts over `tp`, where all ranks have the same rows."""
    split_experts(model, mesh.get_group("tp"))


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Divide by the number of all tokens, and undo the average over `dp`."""
    made = model(batch["x"])
    total = functional.mse_loss(made, batch["y"], reduction="sum")
    num_items = summed(torch.tensor(made.numel()), mesh.get_group("dp"))
    num_processes = mesh["dp"].size() if is_repaired else mesh.size()
    (total / num_items * num_processes).backward()
    average(model.parameters(), mesh.get_group("dp"))
    optimizer.step()
    optimizer.zero_grad()
