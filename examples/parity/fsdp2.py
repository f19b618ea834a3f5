"""FSDP2. Compare with one rank: `syncverify parity examples/parity/fsdp2.py`."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard as parallelize  # of `model` and `mesh`

__all__ = ["batch", "build", "layouts", "loss", "parallelize"]
layouts = ["dp=2", "dp=4"]


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)).cuda()


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()
