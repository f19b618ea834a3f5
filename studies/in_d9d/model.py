"""A model of a few layers, its data, and the gradients that training has to find.

Parameters are multiples of 1/8 between -2 and 2, inputs are integers between -1 and 1, and the
weights of losses add up to a power of two in each step. So float64 holds all sums exactly, and
gradients are compared bit by bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from typing_extensions import override

NUM_LAYERS = 4
WIDTH = 4
BATCH = 2
DTYPE = torch.float64
# Weights of the losses of a step, one a micro-batch: the count differs between steps.
STEPS = ((4,), (1, 3), (1, 1, 2), (2, 2), (4,), (1, 1, 1, 1))

Gradients = dict[str, torch.Tensor]


class Stage(nn.Module):
    """The layers from `first` to before `last`; d9d makes them on the meta device."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(
            {str(n): nn.Linear(WIDTH, WIDTH, dtype=DTYPE) for n in range(first, last)}
        )

    def reset_parameters(self) -> None:
        """Fill each parameter with values that follow from its name."""
        for name, parameter in self.named_parameters():
            generator = torch.Generator().manual_seed(sum(name.encode()))
            values = torch.randint(-8, 9, parameter.shape, generator=generator)
            _fill(parameter, values.to(DTYPE) / 8)

    @override
    def forward(self, inputs: torch.Tensor, shared: object = None) -> torch.Tensor:
        for layer in self.layers.values():
            inputs = layer(inputs)
        return inputs


class RoundedSgd(torch.optim.Optimizer):
    """Descends, and rounds each parameter to a multiple of 1/8 between -2 and 2."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float = 0.25) -> None:
        super().__init__(parameters, {"lr": lr})

    @override
    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # no closure
        for group in self.param_groups:
            for parameter in group["params"]:
                local, gradient = _local(parameter), _local(parameter.grad)
                local.sub_(gradient, alpha=group["lr"]).mul_(8).round_().div_(8)
                local.clamp_(-2, 2)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch of the training.

    Attributes:
        inputs: Shape (BATCH, WIDTH).
        targets: Shape (BATCH, WIDTH).
        weight: Weight of the loss, a scalar.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    weight: torch.Tensor

    def loss(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return a loss that is linear in the outputs."""
        return (outputs * self.targets).sum()


def pack(step: int, replica: int) -> list[MicroBatch]:
    """Return the micro-batches of a data-parallel rank in a step."""
    generator = torch.Generator().manual_seed(1000 * step + replica)

    def drawn() -> torch.Tensor:
        return torch.randint(-1, 2, (BATCH, WIDTH), generator=generator).to(DTYPE)

    return [
        MicroBatch(drawn(), drawn(), torch.tensor(float(weight)))
        for weight in STEPS[step]
    ]


def expected(num_replicas: int) -> list[Gradients]:
    """Train in one process without a synchronizer, and return the gradients of each step."""
    model = Stage(0, NUM_LAYERS)
    model.reset_parameters()
    optimizer = RoundedSgd(model.parameters())
    found: list[Gradients] = []
    for step in range(len(STEPS)):
        optimizer.zero_grad()
        batches = [each for n in range(num_replicas) for each in pack(step, n)]
        for batch in batches:
            (batch.loss(model(batch.inputs)) * batch.weight).backward()
        total = sum(batch.weight.item() for batch in batches)
        for parameter in model.parameters():
            _local(parameter.grad).div_(total)
        found.append(gradients_of(model))
        optimizer.step()
    return found


def gradients_of(model: nn.Module) -> Gradients:
    """Copy the gradients of a model, each as a whole, by name."""
    return {
        name: _whole(parameter.grad).clone()
        for name, parameter in model.named_parameters()
    }


def _fill(parameter: nn.Parameter, values: torch.Tensor) -> None:
    if isinstance(parameter, DTensor):
        mesh, placements = parameter.device_mesh, parameter.placements
        values = distribute_tensor(values, mesh, placements, src_data_rank=None)
    parameter.data.copy_(values)


def _whole(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _local(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
