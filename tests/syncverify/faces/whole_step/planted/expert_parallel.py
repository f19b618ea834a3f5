"""Experts, each on one rank of `ep`, and ways to make a step of them."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from tests.syncverify.faces.whole_step.planted.steps import add
from tests.syncverify.faces.whole_step.reports.by_hand import (
    gathers,
    own_part,
    scatters,
)

NUM_EXPERTS = 4
OWN = {"experts": {"ep": 0}}


class Experts(nn.Module):
    """A layer, and experts behind it; the number of a token's expert is a part of the data."""

    def __init__(self, num_experts: int = NUM_EXPERTS) -> None:
        super().__init__()
        self.group: ProcessGroup | None = None
        self.layer = nn.Linear(3, 3)
        self.experts = nn.Parameter(torch.randn(num_experts, 3, 3))

    def forward(self, x: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        x, first = torch.tanh(self.layer(x)), 0
        if self.group is not None:
            x, expert = gathers(x, self.group), gathers(expert, self.group)
            first = self.group.rank() * len(self.experts)
        out = x * 0  # a rank without experts has a gradient too
        for index, weight in enumerate(self.experts, start=first):
            is_here = (expert == index).unsqueeze(-1)
            out = out + is_here * torch.tanh(x @ weight)
        return out if self.group is None else scatters(out, self.group)


def batch() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(8, 2, 3), "expert": torch.arange(16).reshape(8, 2) % 4}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    out: torch.Tensor = model(batch["x"], batch["expert"])
    return 5 * (out * out + out).mean()


def split(model: Experts, mesh: DeviceMesh) -> None:
    model.group = mesh.get_group("ep")
    model.experts = nn.Parameter(own_part(model.experts, model.group))


def backward(
    model: Experts,
    batch: dict[str, torch.Tensor],
    mesh: DeviceMesh,
    axes_of_experts: Iterable[str] = ("dp",),
) -> None:
    (loss(model, batch) / (mesh["dp"].size() * mesh["ep"].size())).backward()
    add(model.layer.parameters(), mesh, "dp", "ep")
    add([model.experts], mesh, *axes_of_experts)


def right_norm(model: Experts, mesh: DeviceMesh) -> torch.Tensor:
    """Return the norm of all gradients; experts are added over `ep`."""
    squares = model.experts.grad.square().sum()
    dist.all_reduce(squares, group=mesh.get_group("ep"))
    return (squares + squares_of(model.layer)).sqrt()


TRAINING = {
    "build": Experts,
    "parallelize": split,
    "batch": batch,
    "loss": loss,
    "split": ["dp", "ep"],
    "own": OWN,
}


def norm_of_own(model: Experts, mesh: DeviceMesh) -> torch.Tensor:
    return squares_of(model).sqrt()


def squares_of(model: nn.Module) -> torch.Tensor:
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    return torch.stack([each.square().sum() for each in gradients]).sum()


def scale(model: nn.Module, norm: torch.Tensor, limit: float) -> None:
    """Clip with lines of our own."""
    coefficient = torch.clamp(limit / (norm + 1e-6), max=1.0)
    for each in model.parameters():
        if each.grad is not None:
            each.grad *= coefficient
