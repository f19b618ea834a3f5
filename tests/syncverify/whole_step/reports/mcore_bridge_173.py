"""The factor of a LoRA pair that all `tp` ranks have is not summed over their rows."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer
from typing_extensions import override

from tests.syncverify.whole_step.reports.by_hand import gathers, splits, summed, sums
from tests.syncverify.whole_step.reports.mixture import loss

layouts = ["tp=2"]
own = {"up": {"tp": 0}, "up_b": {"tp": 0}, "down": {"tp": 1}}


class Pair(nn.Module):
    """A frozen layer up and down that ranks split, and a LoRA pair beside the first one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(width, width), requires_grad=False)
        self.down = nn.Parameter(torch.randn(width, width), requires_grad=False)
        self.up_a = nn.Parameter(torch.randn(2, width))
        self.up_b = nn.Parameter(torch.zeros(width, 2))
        self.group: ProcessGroup | None = None

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x if self.group is None else splits(x, self.group)
        low = rows @ self.up_a.T
        if self.group is not None:
            low = gathers(low, self.group)
        made = (x @ self.up.T + low @ self.up_b.T).tanh() @ self.down.T
        return made if self.group is None else sums(made, self.group)


def build(width: int = 4) -> Pair:
    """Make the model."""
    return Pair(width)


def parallelize(model: Pair, mesh: DeviceMesh) -> None:
    """Split the layers, and the factor that makes their columns."""
    group = model.group = mesh.get_group("tp")
    for name, dim in (("up", 0), ("up_b", 0), ("down", 1)):
        whole = getattr(model, name)
        part = whole.detach().chunk(group.size(), dim)[group.rank()].clone()
        setattr(model, name, nn.Parameter(part, requires_grad=whole.requires_grad))


def step(
    model: Pair,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Make a step. The factor `up_a` has a gradient from the second step on."""
    loss(model, batch).backward()
    if is_repaired:
        assert model.up_a.grad is not None
        model.up_a.grad = summed(model.up_a.grad, mesh.get_group("tp"))
    optimizer.step()
    optimizer.zero_grad()
