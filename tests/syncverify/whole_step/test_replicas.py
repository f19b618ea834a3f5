"""Copies of parameters and reduced gradients are equal to the bit on all ranks."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.whole_step.causes import CopiesRoundedApart
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    averaged_backward,
    compare,
    mean_square,
    update,
)

pytestmark = pytest.mark.slow


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
    averaged_backward(model, batch, mesh)
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
    mean_square(model, batch).backward()
    for each in model.parameters():
        assert each.grad is not None
        parts = [torch.empty_like(each.grad) for _ in range(group.size())]
        dist.all_gather(parts, each.grad, group=group)
        if own_first:
            parts = parts[group.rank() :] + parts[: group.rank()]
        each.grad = torch.stack(parts).cumsum(0)[-1] / group.size()
    update(optimizer)


def test_an_owner_that_keeps_its_value_from_before_the_cast_is_a_mistake() -> None:
    own = functools.partial(gathered, dtype=torch.float32, owner_keeps=True)
    result = compare(step=own)
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
    result = compare(step=own, layouts=["dp=4"], dtype=torch.float32)
    assert result.is_right, str(result)


def test_ranks_that_add_in_different_orders_are_a_mistake() -> None:
    own = functools.partial(added, own_first=True)
    result = compare(step=own, layouts=["dp=4"])
    (mistake,) = result.mistakes
    assert isinstance(mistake.finding.cause, CopiesRoundedApart)
    assert mistake.finding.quantity is Quantity.STEPPED


def test_ranks_that_add_in_one_order_are_right() -> None:
    own = functools.partial(added, own_first=False)
    result = compare(step=own, layouts=["dp=4"])
    assert result.is_right, str(result)
