"""Parts of a training step that the planted mistakes share."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

Optimizer = torch.optim.Optimizer


def sgd(parameters: list[nn.Parameter]) -> Optimizer:
    """Make an optimizer that shows the size of a gradient."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def unchanged(model: nn.Module, mesh: DeviceMesh) -> None:
    """Leave a model as it is, on each rank."""


def add(parameters: Iterable[nn.Parameter], mesh: DeviceMesh, *axes: str) -> None:
    """Add gradients over axes."""
    for parameter in parameters:
        for axis in axes:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=mesh.get_group(axis))


def average(parameters: Iterable[nn.Parameter], mesh: DeviceMesh, *axes: str) -> None:
    """Average gradients over axes."""
    listed = [*parameters]
    add(listed, mesh, *axes)
    for parameter in listed:
        for axis in axes:
            if parameter.grad is not None:
                parameter.grad /= mesh[axis].size()


def update(optimizer: Optimizer) -> None:
    """Make a step of the optimizer, and clear gradients."""
    optimizer.step()
    optimizer.zero_grad()
