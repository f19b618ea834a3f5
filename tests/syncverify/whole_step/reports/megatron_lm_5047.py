"""An auxiliary loss is scaled by the tokens of a rank, and divided by those of all `tp` ranks."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional
from torch.optim import Optimizer
from typing_extensions import override

from tests.syncverify.whole_step.reports.by_hand import summed

layouts = ["tp=2"]
split = ["tp"]


class Router(nn.Module):
    """Each row goes to one expert. So the gate has the gradient of its own loss alone."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.Parameter(torch.randn(num_experts, width, width))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.experts[self.gate(x).argmax(-1)]
        return torch.einsum("rw,rwv->rv", x, chosen)


def build(width: int = 4, experts: int = 4) -> Router:
    """Make the model."""
    return Router(width, experts)


def _losses(
    model: Router, batch: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums over rows of the main loss and of the gate's."""
    main = functional.mse_loss(model(batch["x"]), batch["y"], reduction="sum")
    return main, model.gate(batch["x"]).logsumexp(-1).square().sum()


def loss(model: Router, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the mean loss of a row, with that of the gate."""
    main, auxiliary = _losses(model, batch)
    return (main + auxiliary) / len(batch["x"])


def step(
    model: Router,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    is_repaired: bool = False,
) -> None:
    """Add the losses of all tokens, and divide gradients by their number."""
    group, num_own = mesh.get_group("tp"), len(batch["x"])
    num_tokens = num_own * group.size()
    main, auxiliary = _losses(model, batch)
    scale = num_tokens if is_repaired else num_own
    (main + auxiliary / num_tokens * scale).backward()
    for each in model.parameters():
        assert each.grad is not None
        each.grad = summed(each.grad, group) / num_tokens
    optimizer.step()
    optimizer.zero_grad()
