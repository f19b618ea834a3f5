"""The trained models: stacks of linear layers, of ordinary parameters or of DTensors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.func import functional_call

from studies.benchmarks.synchronizer.sizes import ModelSize
from syncverify.synchronizer import SynchronizerConfig


@dataclass(frozen=True, slots=True)
class Training:
    """Parameters in registration order, and a forward and backward pass over them.

    Attributes:
        parameters: Parameters in registration order.
        backward: Runs a forward and a backward pass.
    """

    parameters: list[nn.Parameter]
    backward: Callable[[], None]


def make_model(size: ModelSize) -> nn.Sequential:
    """Make a stack of square linear layers, the same on all ranks.

    No activation function separates the layers, so gradients take most of the time. Weights
    are identities, so activations and gradients keep their values through hundreds of layers.
    Other weights could lead to denormal numbers, which cost more time than any synchronizer.
    """
    model = nn.Sequential()
    for _ in range(size.num_layers):
        layer = nn.Linear(size.width, size.width, bias=False)
        nn.init.eye_(layer.weight)
        model.append(layer)
    return model


def make_input(size: ModelSize) -> torch.Tensor:
    """Return ones. Shape (batch, width), float32."""
    return torch.ones(size.batch, size.width)


def ordinary_training(size: ModelSize) -> Training:
    """Return a training of ordinary parameters."""
    model, x = make_model(size), make_input(size)
    return Training(list(model.parameters()), lambda: model(x).sum().backward())


def replicated_training(size: ModelSize, mesh: DeviceMesh) -> Training:
    """Return a training of DTensors that are replicated over all axes of a mesh."""
    model, x = make_model(size), make_input(size)
    placements = [Replicate()] * mesh.ndim
    parameters = {
        name: nn.Parameter(distribute_tensor(weight.detach(), mesh, placements))
        for name, weight in model.named_parameters()
    }

    def backward() -> None:
        local = {name: cast("DTensor", w).to_local() for name, w in parameters.items()}
        functional_call(model, local, (x,)).sum().backward()

    return Training(list(parameters.values()), backward)


def averaging(group: dist.ProcessGroup | None) -> SynchronizerConfig:
    """Return a configuration that averages as DDP does, but divides after the sum."""
    return SynchronizerConfig(process_group=group, process_group_reduction="avg")
