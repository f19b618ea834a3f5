"""Right trainings in which rounding errors grow, drawn by a seed."""

from __future__ import annotations

import random
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from typing_extensions import override

WIDTH: Final = 8


class Attention(nn.Module):
    """Attention of one head: the gradient of its key's bias is zero in exact arithmetic."""

    def __init__(self, sharpness: float) -> None:
        super().__init__()
        self.key, self.query = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.sharpness = sharpness

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return x + torch.softmax(scores * self.sharpness, -1) @ x


class NearlyConstant(nn.Module):
    """A norm of rows that are constant but for a small part."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self.norm, self.part = nn.LayerNorm(WIDTH), part

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(1 + self.part * x)
        return x + normed


class Cancelling(nn.Module):
    """A sum of parameters that is nearly zero, and the gate that it makes."""

    def __init__(self, rest: float) -> None:
        super().__init__()
        half = torch.randn(WIDTH * WIDTH // 2)
        self.terms = nn.Parameter(torch.cat([half, -half]).view(WIDTH, WIDTH))
        self.rest = rest

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + torch.tanh(self.terms.sum() / self.rest))


class UpAndDown(nn.Module):
    """Two layers, which tensor parallelism splits."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down: torch.Tensor = self.down(functional.gelu(self.up(x)))
        return x + down


def training(seed: int) -> dict[str, Any]:
    """Return the arguments of `parity` for a right training."""
    draw = random.Random(seed)
    blocks = [draw.choice(_BLOCKS) for _ in range(draw.randint(1, 3))]
    sizes = [draw.choice([1e-6, 1e-3, 1.0, 30.0, 1000.0]) for _ in blocks]
    logits = draw.choice([1.0, 100.0])
    optimizer = draw.choice(_OPTIMIZERS)
    layout = draw.choice(
        ["dp=2,tp=1", "dp=4,tp=1", "dp=2,tp=2", "dp=1,tp=2", "dp=8,tp=1"]
    )

    def build() -> nn.Module:
        middle = [each(size) for each, size in zip(blocks, sizes, strict=True)]
        layers = [nn.Linear(WIDTH, WIDTH), *middle, UpAndDown(), nn.Linear(WIDTH, 5)]
        model = nn.Sequential(*layers).cuda()
        with torch.no_grad():
            model[-1].weight.mul_(logits)
        return model

    return {
        "build": build,
        "parallelize": parallelize,
        "batch": batch,
        "loss": loss,
        "optimizer": optimizer,
        "layouts": [layout],
        "clip": draw.choice([None, 0.1]),
        "micro_batches": [draw.choice([1, 2])] if layout != "dp=8,tp=1" else [1],
        "steps": 3,
        "seed": seed,
    }


def parallelize(model: nn.Sequential, mesh: DeviceMesh) -> None:
    """Split the layers that go up and down, and shard all parameters."""
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for each in model:
        if isinstance(each, UpAndDown):
            parallelize_module(each, mesh["tp"], plan)
        fully_shard(each, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Make 16 rows of 3 vectors, with a class each."""
    x = torch.randn(16, 3, WIDTH, device="cuda")
    return x, torch.randint(0, 5, (16, 3), device="cuda")


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the mean loss of the classes."""
    out = model(batch[0])
    return functional.cross_entropy(out.flatten(0, 1), batch[1].flatten())


_BLOCKS: Final = (Attention, NearlyConstant, Cancelling)
_OPTIMIZERS: Final = (
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01, eps=1e-15),
    lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, eps=1e-15),
    lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
)
