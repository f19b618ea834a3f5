"""`accelerate` with DDP: the script's own four calls, and nothing else."""

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn

layouts = ["dp=2"]
clip = 1.0


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)).cuda()


def parallelize(model, mesh):
    for each in (PartialState, AcceleratorState, GradientState):
        each._shared_state = {}  # noqa: SLF001  # one for each rank, as in real processes
    accelerator = Accelerator()
    wrapped = accelerator.prepare(model)
    wrapped.accelerator = accelerator
    return wrapped


def batch():
    return torch.randn(8, 8, device="cuda")


def loss(model, batch):
    return (model(batch) - batch).square().mean()


def step(model, batch, optimizer):
    model.accelerator.backward(loss(model, batch))
    model.accelerator.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
