"""A LoRA factor that all expert ranks share starts from each rank's own random numbers."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from typing_extensions import override

from tests.syncverify.whole_step.reports.mixture import Mixture, split_experts

layouts = ["ep=2"]
own = {"experts": {"ep": 0}}


class Adapted(Mixture):
    """Experts with one LoRA pair for all of them."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__(width, num_experts)
        self.shared_a = nn.Parameter(torch.zeros(2, width))
        self.shared_b = nn.Parameter(torch.zeros(width, 2))
        start(self, seed=0)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted = x @ self.shared_a.T @ self.shared_b.T
        return super().forward(x) + adapted


def start(model: Adapted, seed: int) -> None:
    """Set the factor that does not start at zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.shared_a.copy_(
            torch.randn(2, model.shared_a.shape[1], generator=generator)
        )


def build(width: int = 4, experts: int = 4) -> Adapted:
    """Make the model."""
    return Adapted(width, experts)


def parallelize(model: Adapted, mesh: DeviceMesh, *, is_repaired: bool = False) -> None:
    """Split the experts, and start the pair of this rank."""
    group = mesh.get_group("ep")
    split_experts(model, group)
    start(model, seed=0 if is_repaired else group.rank())
