"""ZeRO-1 by hand: the optimizer of each rank has a flat slice of all parameters, and no parameter."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from syncverify.whole_step.causes import NotContinued, OtherOption
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    compare,
    mean_square,
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


def step(
    model: nn.Module,
    batch: torch.Tensor,
    optimizer: Optimizer,
    schedule: LRScheduler,
    mesh: DeviceMesh,
) -> None:
    backward(model, batch, mesh)
    update(model, optimizer, mesh)
    schedule.step()


def save(model: Any, optimizer: Optimizer, schedule: LRScheduler, path: str) -> None:
    held = [each.state_dict() for each in (model, optimizer, schedule)]
    torch.save([*held, model.part.detach()], Path(path) / f"{dist.get_rank()}.pt")
    dist.barrier()


def load(
    model: Any,
    optimizer: Optimizer,
    schedule: LRScheduler,
    path: str,
    *,
    state_of: int | None = None,
) -> None:
    """Load the rank's own file; the state of the optimizer may be that of another rank."""
    rank = dist.get_rank()
    parameters, state, rates, part = torch.load(Path(path) / f"{rank}.pt")
    if state_of is not None:
        state = torch.load(Path(path) / f"{state_of}.pt")[1]
    model.load_state_dict(parameters)
    optimizer.load_state_dict(state)
    schedule.load_state_dict(rates)
    model.part.data.copy_(part)


def play(**more: Any) -> Parity:
    return compare(parallelize=cut, optimizer=adam, **more)


def resumed(**more: Any) -> Parity:
    return play(step=step, schedule=schedule, steps=4, resume=True, save=save, **more)


def test_a_slice_that_each_rank_saves_and_loads_is_right() -> None:
    result = resumed(load=load)
    assert result.is_right, str(result)
    assert result.plays[-1].saved_on is not None


def test_the_moments_of_another_rank_show_in_the_steps_after() -> None:
    result = resumed(load=functools.partial(load, state_of=0))
    (mistake,) = result.mistakes
    assert mistake.finding.cause == NotContinued(is_all_compared=False)
    assert mistake.finding.quantity is Quantity.PARAMETER
    assert "lacks it" not in str(result)
    assert "state of tensors that are no parameters was not compared" in str(result)


CLIP = 0.05


def clipped_step(
    model: Any,
    batch: torch.Tensor,
    optimizer: Optimizer,
    mesh: DeviceMesh,
    *,
    over_all: bool,
) -> dict[str, torch.Tensor]:
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


def test_a_norm_over_the_shards_is_right() -> None:
    result = clipped(over_all=False)
    assert result.is_right, str(result)


def test_a_norm_that_counts_replicas_comes_first_and_alone() -> None:
    result = clipped(over_all=True)
    (mistake,) = result.mistakes
    assert mistake.finding.names == {"norm"}
    assert "and no parameter depends on these" in str(result)


def unreduced_step(
    model: Any, batch: torch.Tensor, optimizer: Optimizer, mesh: DeviceMesh
) -> None:
    """Give the slice a gradient of this rank alone."""
    mean_square(model, batch).backward()
    flat = torch.cat([each.grad.flatten() for each in model.parameters()])
    group = _sharding(mesh)
    model.part.grad = flat.chunk(group.size())[group.rank()]
    update(model, optimizer, mesh)


def test_gradients_that_slices_take_unreduced_are_named() -> None:
    result = play(step=unreduced_step)
    causes = {each.finding.cause.word for each in result.mistakes}
    assert causes == {"lacks-sum"}, str(result)


def step_without_schedule(
    model: Any, batch: torch.Tensor, optimizer: Optimizer, mesh: DeviceMesh
) -> None:
    backward(model, batch, mesh)
    update(model, optimizer, mesh)


def test_a_step_that_takes_no_schedule_is_named_by_its_learning_rate() -> None:
    result = play(step=step_without_schedule, schedule=schedule)
    (mistake,) = result.mistakes
    assert mistake.finding.cause == OtherOption("lr", 0.01, 0.005, is_left=True)
    assert "step() takes no `schedule`" in str(result)


def test_a_step_that_takes_the_schedule_is_right() -> None:
    result = play(step=step, schedule=schedule)
    assert result.is_right, str(result)
