"""The weights of norms that see a part of the rows are not summed over `tp`."""

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
own = {"up.*": {"tp": 0}, "down.weight": {"tp": 1}}


class Block(nn.Module):
    """A norm on a rank's own rows, then a layer up and down that ranks split."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.group: ProcessGroup | None = None

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            result: torch.Tensor = self.down(self.up(self.norm(x)).relu())
            return result
        x = gathers(self.norm(splits(x, self.group)), self.group)
        return sums(self.down(self.up(x).relu()), self.group)


def build(width: int = 4) -> Block:
    """Make the model."""
    return Block(width)


def parallelize(model: Block, mesh: DeviceMesh) -> None:
    """Split the layers up and down."""
    group = model.group = mesh.get_group("tp")
    size, rank = group.size(), group.rank()
    for layer, dim in ((model.up, 0), (model.down, 1)):
        part = layer.weight.detach().chunk(size, dim)[rank]
        layer.weight = nn.Parameter(part.clone())
    model.up.bias = nn.Parameter(model.up.bias.detach().chunk(size)[rank].clone())


def step(
    model: Block,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Make a step; as reported, the part that finishes gradients is left out."""
    loss(model, batch).backward()
    if is_repaired:
        for each in model.norm.parameters():
            assert each.grad is not None
            each.grad = summed(each.grad, mesh.get_group("tp"))
    optimizer.step()
    optimizer.zero_grad()
