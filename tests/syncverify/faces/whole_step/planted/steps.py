"""Parts of a training, and of its step, that the planted mistakes share."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify import parity
from syncverify.faces.whole_step.outcome import Parity

Optimizer = torch.optim.Optimizer
Step = Callable[..., None]


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def rows() -> torch.Tensor:
    return torch.randn(8, 3)


def mean_square(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return (out - 1).square().mean()


def sgd(parameters: list[nn.Parameter]) -> Optimizer:
    """Make an optimizer that shows the size of a gradient."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def unchanged(model: nn.Module, mesh: DeviceMesh) -> None:
    """Leave a model as it is, on each rank."""


def compare(**changes: Any) -> Parity:
    """Compare a training of two layers on two ranks with one rank."""
    training = {
        "build": layers,
        "parallelize": unchanged,
        "batch": rows,
        "loss": mean_square,
        "layouts": ["dp=2"],
        "optimizer": sgd,
        "device": "cpu",
    }
    return parity(**(training | changes))


def add(parameters: Iterable[nn.Parameter], mesh: DeviceMesh, *axes: str) -> None:
    for parameter in parameters:
        for axis in axes:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=mesh.get_group(axis))


def average(parameters: Iterable[nn.Parameter], mesh: DeviceMesh, *axes: str) -> None:
    listed = [*parameters]
    add(listed, mesh, *axes)
    for parameter in listed:
        for axis in axes:
            if parameter.grad is not None:
                parameter.grad /= mesh[axis].size()


def averaged_backward(model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh) -> None:
    mean_square(model, batch).backward()
    average(model.parameters(), mesh, "dp")


def update(optimizer: Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad()


def averaged_step(model, batch, mesh, optimizer):
    averaged_backward(model, batch, mesh)
    update(optimizer)


def with_gradients(change: Callable[[nn.Module, DeviceMesh], object]) -> Step:
    """Return a step that changes averaged gradients before it updates."""

    def step(model, batch, mesh, optimizer):
        averaged_backward(model, batch, mesh)
        change(model, mesh)
        update(optimizer)

    return step


def scale_gradients(model, mesh, *, factors):
    """Multiply the gradients of each rank of `dp` by a factor of its own."""
    for each in model.parameters():
        each.grad *= factors[mesh["dp"].get_local_rank()]
