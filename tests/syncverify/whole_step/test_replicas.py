"""Copies of parameters and reduced gradients are equal to the bit on all ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify import parity
from syncverify.whole_step.causes import CopiesRoundedApart
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    average,
    sgd,
    unchanged,
    update,
)

pytestmark = pytest.mark.slow


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batch() -> torch.Tensor:
    return torch.randn(8, 3)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return (out - 1).square().mean()


def gathered(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    dtype: torch.dtype,
    owner_keeps: bool,
) -> None:
    """The owner of a parameter updates it, and sends it in a lower dtype."""
    group = mesh.get_group("dp")
    loss(model, batch).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)
    with torch.no_grad():
        for index, each in enumerate(model.parameters()):
            owner = index % group.size()
            sent = each.to(dtype)
            dist.broadcast(sent, group_src=owner, group=group)
            if not owner_keeps or owner != group.rank():
                each.copy_(sent)


def added(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    own_first: bool,
) -> None:
    """Each rank adds all gradients by itself."""
    group = mesh.get_group("dp")
    loss(model, batch).backward()
    for each in model.parameters():
        assert each.grad is not None
        parts = [torch.empty_like(each.grad) for _ in range(group.size())]
        dist.all_gather(parts, each.grad, group=group)
        if own_first:
            parts = parts[group.rank() :] + parts[: group.rank()]
        each.grad = torch.stack(parts).cumsum(0)[-1] / group.size()
    update(optimizer)


def play(step: Callable[..., None], layout: str = "dp=4", **more: Any) -> Parity:
    return parity(
        build,
        unchanged,
        batch,
        loss,
        step=step,
        optimizer=sgd,
        layouts=[layout],
        device="cpu",
        **more,
    )


def test_an_owner_that_keeps_its_value_from_before_the_cast_is_a_mistake() -> None:
    own = functools.partial(gathered, dtype=torch.float32, owner_keeps=True)
    result = play(own, layout="dp=2")
    (mistake,) = result.mistakes
    cause = CopiesRoundedApart((0, 1), frozenset({"dp"}))
    assert mistake.finding.cause == cause
    assert mistake.finding.quantity is Quantity.PARAMETER
    assert not result.is_right
    text = str(result)
    assert "copies differ over `dp`, and are right within rounding" in text
    assert mistake.places[0].function == "gathered"
    equal, differs = (
        next(line for line in text.splitlines() if line.endswith(mark))
        for mark in ("(equal)", "(differs)")
    )
    numbers = [line.split(": ")[1].rsplit(" ", 1)[0] for line in (equal, differs)]
    assert numbers[0] != numbers[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_owner_that_keeps_what_it_sends_is_right(dtype: torch.dtype) -> None:
    own = functools.partial(gathered, dtype=dtype, owner_keeps=False)
    result = play(own, dtype=torch.float32)
    assert result.is_right, str(result)


def test_ranks_that_add_in_different_orders_are_a_mistake() -> None:
    result = play(functools.partial(added, own_first=True))
    (mistake,) = result.mistakes
    assert isinstance(mistake.finding.cause, CopiesRoundedApart)
    assert mistake.finding.quantity is Quantity.STEPPED


def test_ranks_that_add_in_one_order_are_right() -> None:
    result = play(functools.partial(added, own_first=False))
    assert result.is_right, str(result)
