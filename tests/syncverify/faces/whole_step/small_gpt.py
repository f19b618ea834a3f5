"""A small language model, and ways to put it on a mesh."""

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

_WORDS = 16


class Block(nn.Module):
    """A norm, and a layer up and down around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.down(functional.gelu(self.up(self.norm(x))))
        return x + hidden


def build(width: int = 8, layers: int = 2) -> nn.Module:
    blocks = [Block(width) for _ in range(layers)]
    model = nn.Sequential(
        nn.Embedding(_WORDS, width), *blocks, nn.Linear(width, _WORDS)
    )
    return model.cuda()


def batch() -> torch.Tensor:
    return torch.randint(0, _WORDS, (8, 6), device="cuda")


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out = model(batch[:, :-1])
    return functional.cross_entropy(out.flatten(0, 1), batch[:, 1:].flatten())


def fsdp(model: nn.Sequential, mesh: DeviceMesh) -> None:
    for each in model:
        fully_shard(each, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])


def split_blocks(model: nn.Sequential, mesh: DeviceMesh) -> None:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for each in model:
        if isinstance(each, Block):
            parallelize_module(each, mesh["tp"], plan)


def tensor_parallel_fsdp(model: nn.Sequential, mesh: DeviceMesh) -> None:
    split_blocks(model, mesh)
    fsdp(model, mesh)


def undivided_fsdp(model: nn.Sequential, mesh: DeviceMesh) -> None:
    """Shard parameters, and add gradients where their mean is right."""
    fsdp(model, mesh)
    for each in model.modules():
        if hasattr(each, "set_gradient_divide_factor"):
            each.set_gradient_divide_factor(1.0)
