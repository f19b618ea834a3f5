"""HSDP: copies over `dp_replicate`, shards over `dp_shard`."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

layouts = ["dp_replicate=2,dp_shard=2"]
clip = 1.0


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)).cuda()


def parallelize(model, mesh):
    fully_shard(model, mesh=mesh)


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()
