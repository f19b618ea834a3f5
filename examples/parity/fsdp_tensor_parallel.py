"""FSDP2 over `dp` of layers that are split over `tp`."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

layouts = ["dp=2,tp=2"]
clip = 1.0


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)).cuda()


def parallelize(model, mesh):
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()
