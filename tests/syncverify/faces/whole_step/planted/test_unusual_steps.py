"""Unusual steps that are right, and mistakes of what surrounds a step."""

import functools
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from syncverify import parity
from syncverify.judge.whole_step.causes import (
    LacksSum,
    OtherlyFrozen,
    OtherOption,
    StepMistake,
    Unexplained,
    Weighted,
)
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step import right_programs
from tests.syncverify.faces.whole_step.planted.steps import (
    Optimizer,
    averaged_step,
    compare,
    mean_square,
    update,
)

pytestmark = pytest.mark.slow


def build() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def of_spaced_name() -> nn.Sequential:
    return nn.Sequential(OrderedDict({"last layer": nn.Linear(4, 4)}))


def half_frozen() -> nn.Sequential:
    model = build()
    model[0].requires_grad_(requires_grad=False)
    return model


def batch() -> torch.Tensor:
    return torch.randn(4, 4)


play = functools.partial(compare, build=build, batch=batch, step=averaged_step)


class Turned(nn.Module):
    """A layer, and a rotation by complex numbers in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("turns", torch.polar(torch.ones(2), torch.arange(2.0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(self.layer(x).unflatten(-1, (2, 2)))
        return torch.view_as_real(pairs * self.turns).flatten(1)


def partly_split(model: nn.Module, mesh: DeviceMesh) -> None:
    parallelize_module(
        model, mesh["tp"], {"2": ColwiseParallel(output_layouts=Replicate())}
    )


def test_a_step_beside_a_complex_buffer_is_silent() -> None:
    result = play(build=Turned)
    assert result.is_right, str(result)


def test_the_default_optimizer_takes_dtensors_and_tensors() -> None:
    result = parity(
        lambda: build().cuda(),
        partly_split,
        lambda: batch().cuda(),
        mean_square,
        layouts=["tp=2"],
    )
    assert result.is_right, str(result)


def mirrored(model: nn.Module, mesh: DeviceMesh) -> None:
    """Give each rank a shard of the first layer, and other biases than one rank."""
    for name in ("weight", "bias"):
        part = getattr(model[0], name).detach().chunk(2)[mesh.get_rank()].clone()
        setattr(model[0], name, nn.Parameter(part))


def by_halves(model, batch, mesh, optimizer):
    """Make gradients that are wrong in no known way, of shards and of copies."""
    for number, each in enumerate(model.parameters(), start=1):
        own = number + (mesh.get_rank() if number <= 2 else 0)
        each.grad = torch.linspace(0, own, each.numel()).view_as(each).to(each)
    update(optimizer)


def test_shards_that_are_wrong_are_not_called_copies() -> None:
    result = play(
        parallelize=mirrored, step=by_halves, layouts=["tp=2"], own={"0.*": {"tp": 0}}
    )
    (mistake,) = result.mistakes
    assert mistake.finding.cause == Unexplained()
    assert len(mistake.finding.differences) == 4
    assert "copies differ" not in str(result)


def of_other_rate(parameters: list[nn.Parameter]) -> Optimizer:
    size = dist.get_world_size() if dist.is_initialized() else 1
    return torch.optim.SGD(parameters, lr=0.1 * size)


def trained_again(model: nn.Module, mesh: DeviceMesh) -> None:
    model[0].requires_grad_(requires_grad=True)


def frozen(model: nn.Module, mesh: DeviceMesh) -> None:
    model[0].requires_grad_(requires_grad=False)


def of_the_first_part(model, batch, mesh, optimizer):
    """Train all ranks on one part of the batch, as a sampler does that lacks the rank."""
    part = batch.clone()
    dist.broadcast(part, 0)
    averaged_step(model, part, mesh, optimizer)


Names = tuple[str, ...]
_FIRST = ("0.weight", "0.bias")
_ALL = (*_FIRST, "2.weight", "2.bias")
_OF_DP = frozenset({frozenset({"dp"})})
_NAMED: list[tuple[dict[str, Any], Quantity, StepMistake, Names]] = [
    ({"optimizer": of_other_rate}, Quantity.PARAMETER,
     OtherOption("lr", 0.2, 0.1, _OF_DP), _ALL),
    ({"build": of_spaced_name, "optimizer": of_other_rate}, Quantity.PARAMETER,
     OtherOption("lr", 0.2, 0.1, _OF_DP), ("last layer.weight", "last layer.bias")),
    ({"build": half_frozen, "parallelize": trained_again}, Quantity.PARAMETER,
     OtherlyFrozen((0, 1), are_frozen=False), _FIRST),
    ({"parallelize": frozen}, Quantity.GRADIENT,
     OtherlyFrozen((0, 1), are_frozen=True), _FIRST),
    ({"step": of_the_first_part}, Quantity.GRADIENT,
     Weighted((2.0, 0.0), are_equal=False), _ALL),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "quantity", "cause", "names"), _NAMED, ids=lambda value: str(value)[:12]
)
def test_a_mistake_around_the_step_is_named(
    changes: dict[str, Any], quantity: Quantity, cause: StepMistake, names: Names
) -> None:
    (mistake,) = play(**changes).mistakes
    finding = mistake.finding
    assert (finding.quantity, finding.cause) == (quantity, cause)
    assert finding.names == {*names}


@pytest.mark.long
def test_tied_weights_that_are_not_summed_over_stages_are_named() -> None:
    result = compare(
        build=right_programs.Tied,
        parallelize=right_programs.own_stage,
        batch=right_programs.rows,
        loss=right_programs.loss,
        layouts=["pp=2"],
        step=functools.partial(right_programs.staged_step, adds_tied=False),
    )
    (mistake,) = result.mistakes
    assert [each.name for each in mistake.finding.differences] == ["embedding.weight"]
    assert mistake.finding.cause == LacksSum(frozenset({"pp"}))
    assert "not compared" not in str(result)
