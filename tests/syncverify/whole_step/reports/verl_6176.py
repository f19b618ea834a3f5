"""Ranks run as many backwards as their own rows need, and each backward has a collective."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.optim import Optimizer

from tests.syncverify.whole_step.reports.mixture import Mixture


def parallelize(model: Mixture, mesh: DeviceMesh) -> None:
    """Shard parameters over `dp`."""
    fully_shard(model, mesh=mesh["dp"])


def step(
    model: Mixture,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Run rank 0's rows in two parts, and those of others in one; or pad with weight 0."""
    rows = batch["x"].shape[0]
    sizes = [rows // 2, rows - rows // 2] if mesh.get_local_rank("dp") == 0 else [rows]
    if is_repaired:
        sizes += [0] * (2 - len(sizes))
    first = 0
    for size in sizes:
        taken = slice(first, first + size) if size else slice(0, 1)
        first += size
        made = model(batch["x"][taken])
        total = functional.mse_loss(made, batch["y"][taken], reduction="sum")
        (total * (size > 0) / batch["y"].numel()).backward()
    optimizer.step()
    optimizer.zero_grad()
