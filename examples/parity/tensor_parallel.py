"""Tensor parallelism with a norm on each rank's part of the sequence."""

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

layouts = ["tp=2", "tp=4"]
clip = 1.0
PLAN = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(),
    "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(8), nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(x))))


def build():
    return Block().cuda()


def parallelize(model, mesh):
    parallelize_module(model, mesh, PLAN)


def batch():
    return torch.randn(2, 8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()
