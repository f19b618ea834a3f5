"""ZeRO by hand: flat slices that the optimizer has, and parameters that the forward gathers."""

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim.lr_scheduler import LambdaLR

from syncverify.errors import UsageError
from syncverify.faces.whole_step.outcome import Parity
from syncverify.faces.whole_step.training import Function
from syncverify.judge.whole_step.causes import OtherOption
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import (
    Optimizer,
    compare,
    mean_square,
    sgd,
)

pytestmark = pytest.mark.slow


def cut(model: nn.Module, mesh: DeviceMesh) -> None:
    """Give the model the rank's slice of all parameters, as `part`."""
    group = _sharding(mesh)
    flat = torch.cat([each.detach().flatten() for each in model.parameters()])
    part = nn.Parameter(flat.chunk(group.size())[group.rank()].clone())
    object.__setattr__(model, "part", part)


def _sharding(mesh: DeviceMesh) -> dist.ProcessGroup:
    names = mesh.mesh_dim_names or ()
    return mesh.get_group("dp_shard" if "dp_shard" in names else "dp")


def adam(model: nn.Module) -> Optimizer:
    part = getattr(model, "part", None)
    return torch.optim.AdamW([*model.parameters()] if part is None else [part], lr=0.01)


def schedule(optimizer: Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: 1 / (1 + step))


def backward(model: Any, batch: torch.Tensor, mesh: DeviceMesh) -> None:
    """Give the slice its part of the mean gradient."""
    mean_square(model, batch).backward()
    flat = torch.cat([each.grad.flatten() for each in model.parameters()])
    dist.all_reduce(flat)
    group = _sharding(mesh)
    model.part.grad = flat.chunk(group.size())[group.rank()] / dist.get_world_size()


@torch.no_grad()
def update(model: Any, optimizer: Optimizer, mesh: DeviceMesh) -> None:
    """Update the slice, and send it."""
    optimizer.step()
    parameters = [*model.parameters()]
    flat = torch.cat([each.flatten() for each in parameters])
    dist.all_gather_single(flat, model.part.detach(), group=_sharding(mesh))
    parts = flat.split([each.numel() for each in parameters])
    for each, part in zip(parameters, parts, strict=True):
        each.copy_(part.view_as(each))
        each.grad = None


def play(**more: Any) -> Parity:
    return compare(parallelize=cut, optimizer=adam, **more)


CLIP = 0.05


def clipped_step(model, batch, optimizer, mesh, *, over_all):
    """Clip by the norm of all slices; over all ranks, replicas count twice."""
    backward(model, batch, mesh)
    square = model.part.grad.square().sum()
    dist.all_reduce(square, group=None if over_all else _sharding(mesh))
    norm = square.sqrt()
    model.part.grad *= (CLIP / (norm + 1e-6)).clamp(max=1.0)
    update(model, optimizer, mesh)
    return {"norm": norm}


def clipped(*, over_all: bool) -> Parity:
    own = functools.partial(clipped_step, over_all=over_all)
    return play(step=own, clip=CLIP, layouts=["dp_replicate=2,dp_shard=2"])


@pytest.mark.long
def test_a_norm_over_the_shards_is_right() -> None:
    result = clipped(over_all=False)
    assert result.is_right, str(result)


@pytest.mark.slow
def test_a_norm_that_counts_replicas_comes_first_and_alone() -> None:
    result = clipped(over_all=True)
    (mistake,) = result.mistakes
    assert mistake.finding.names == {"norm"}
    assert "and no parameter depends on these" in str(result)


def step_without_schedule(model, batch, optimizer, mesh):
    backward(model, batch, mesh)
    update(model, optimizer, mesh)


def test_a_step_that_takes_no_schedule_is_named_by_its_learning_rate() -> None:
    result = play(step=step_without_schedule, schedule=schedule)
    (mistake,) = result.mistakes
    assert mistake.finding.cause == OtherOption("lr", 0.01, 0.005, is_left=True)
    assert "step() takes no `schedule`" in str(result)


class Gathering(nn.Module):
    """A layer that gathers its parameters in each forward pass; in the first alone is wrong."""

    def __init__(
        self, layer: nn.Module, mesh: DeviceMesh, *, gathers_once: bool = False
    ) -> None:
        super().__init__()
        self.module = layer
        self.group = mesh.get_group("dp")
        self.shards = [self._own(each.detach()) for each in layer.parameters()]
        self._gathers_once, self._is_gathered = gathers_once, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (self._gathers_once and self._is_gathered):
            self._gather()
        self._is_gathered = True
        return self.module(x)

    def _gather(self) -> None:
        for parameter, shard in zip(self.module.parameters(), self.shards, strict=True):
            parts = [torch.empty_like(shard) for _ in range(self.group.size())]
            dist.all_gather(parts, shard.detach(), group=self.group)
            parameter.data = torch.cat(parts)

    def reduce(self, divisor: int) -> None:
        """Give each shard its part of the reduced gradient."""
        for parameter, shard in zip(self.module.parameters(), self.shards, strict=True):
            dist.all_reduce(parameter.grad, group=self.group)
            shard.grad = self._own(parameter.grad).detach() / divisor
            parameter.grad = None

    def _own(self, value: torch.Tensor) -> torch.Tensor:
        return value.chunk(self.group.size())[self.group.rank()].clone()

    def free(self) -> None:
        for parameter in self.module.parameters():
            parameter.data = torch.empty(0, dtype=parameter.dtype)


def optimizer_of_shards(model: nn.Module) -> Optimizer:
    shards = getattr(model, "shards", None)
    return sgd([*model.parameters()] if shards is None else shards)


def sharded_step(model, batch, mesh, optimizer, *, frees=False, divides=True):
    mean_square(model, batch).backward()
    model.reduce(mesh["dp"].size() if divides else 1)
    optimizer.step()
    optimizer.zero_grad()
    if frees:
        model.free()


def _play_gathered(
    made: Function, plain: Function | None, *, steps: int = 3, **more: bool
) -> Parity:
    return compare(
        build=functools.partial(nn.Linear, 4, 4),
        parallelize=functools.partial(Gathering, **more),
        batch=lambda: torch.randn(4, 4),
        loss=plain,
        step=made,
        steps=steps,
        optimizer=optimizer_of_shards,
    )


@pytest.mark.parametrize(("plain", "frees"), [(mean_square, True), (None, False)])
def test_parameters_that_the_next_forward_gathers_are_right(
    plain: Function | None, *, frees: bool
) -> None:
    result = _play_gathered(functools.partial(sharded_step, frees=frees), plain)
    assert result.is_right, str(result)
    assert result.plays[-1].late == ("bias", "weight")
    assert "not compared: bias, weight after the last step of dp=2" in str(result)


@pytest.mark.slow
def test_a_wrong_divisor_of_shards_is_found_without_a_loss_too() -> None:
    assert not _play_gathered(
        functools.partial(sharded_step, divides=False), None
    ).is_right


@pytest.mark.long
def test_parameters_that_are_gathered_once_are_wrong() -> None:
    result = _play_gathered(sharded_step, mean_square, gathers_once=True)
    assert Quantity.PARAMETER in result.mistakes[0].finding.follows
    assert not result.plays[0].late


def test_one_step_shows_no_parameter_that_is_gathered_late() -> None:
    with pytest.raises(UsageError, match="make two steps or more"):
        _play_gathered(sharded_step, mean_square, steps=1)
