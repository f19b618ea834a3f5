"""Values that a step returns, in any form and dtype, and copies that are equal to the bit."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import CopiesRoundedApart
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import (
    averaged_backward,
    compare,
    mean_square,
    update,
    with_gradients,
)

pytestmark = pytest.mark.slow
Form = Callable[[torch.Tensor, DeviceMesh], Any]
CLIP = 0.5


def step(model, batch, mesh, optimizer, *, form, factor):
    averaged_backward(model, batch, mesh)
    norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    update(optimizer)
    others = {"count": 2**70, "listed": [0.5], "text": "", "none": None}
    return {"norm": form(norm * factor, mesh), **others}


def play(form: Form, factor: float = 1.0) -> Parity:
    own = functools.partial(step, form=form, factor=factor)
    return compare(step=own, clip=CLIP)


def _in_float32(norm: torch.Tensor, _: DeviceMesh) -> float:
    total = torch.zeros(1)
    total += norm.square()
    return float(total.sqrt())


def _mixed(norm: torch.Tensor, _: DeviceMesh) -> float:
    return norm.item() / 2 + norm.float().item() / 2


def _of_mesh(norm: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    return DTensor.from_local(norm, mesh, [Replicate()])


RIGHT: dict[str, Form] = {
    "tensor": lambda norm, _: norm,
    "item": lambda norm, _: norm.item(),
    "host in float64": lambda norm, _: math.sqrt(norm.numpy()[()] ** 2),
    "numpy float32": lambda norm, _: np.float32(norm.item()),
    "tensor of float32": lambda norm, _: norm.float(),
    "item of float32": lambda norm, _: norm.float().item(),
    "sum in float32": _in_float32,
    "item of bfloat16": lambda norm, _: float(norm.bfloat16()),
    "mixed": _mixed,
    "DTensor": _of_mesh,
}


@pytest.mark.long
@pytest.mark.parametrize("form", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_norm_is_right_in_the_dtype_that_it_went_through(form: Form) -> None:
    result = play(form)
    assert result.is_right, str(result)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("host in float64", 1 + 1e-9),
        ("item of float32", 1 + 1e-4),
        ("item of bfloat16", 1.4),
        ("tensor", math.inf),
        ("item", math.nan),
    ],
)
def test_a_wrong_norm_is_wrong_and_printed_so_that_it_differs(
    name: str, factor: float
) -> None:
    result = play(RIGHT[name], factor)
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.RETURNED
    lines = str(result).splitlines()
    wrong = next(line for line in lines if line.endswith("(wrong)"))
    right = next(line for line in lines if "on one rank: " in line)
    assert wrong.split(": ")[1].removesuffix(" (wrong)") != right.split(": ")[1]


def clip_in_float32(model: nn.Module, mesh: DeviceMesh) -> None:
    squares = torch.zeros(1)
    for each in model.parameters():
        squares += each.grad.square().sum()
    norm = squares.sqrt().item()
    for each in model.parameters():
        each.grad.mul_(min(1.0, CLIP / (norm + 1e-6)))


@pytest.mark.long
def test_a_coefficient_of_float32_clips_within_the_bound_of_float32() -> None:
    result = compare(step=with_gradients(clip_in_float32), clip=CLIP)
    assert result.is_right, str(result)


@pytest.mark.long
def test_scalars_in_float32_are_named_where_their_bound_counts() -> None:
    note = "note: scalars of dp=2 are in float32, and values have the bound of its rounding"
    assert note in str(play(RIGHT["item of float32"]))
    assert note not in str(play(RIGHT["item"]))


def gathered(model, batch, mesh, optimizer, *, dtype, owner_keeps):
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


def added(model, batch, mesh, optimizer, *, own_first):
    """Each rank adds all gradients by itself."""
    group = mesh.get_group("dp")
    mean_square(model, batch).backward()
    for each in model.parameters():
        parts = [torch.empty_like(each.grad) for _ in range(group.size())]
        dist.all_gather(parts, each.grad, group=group)
        if own_first:
            parts = parts[group.rank() :] + parts[: group.rank()]
        each.grad = torch.stack(parts).cumsum(0)[-1] / group.size()
    update(optimizer)


@pytest.mark.slow
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


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_owner_that_keeps_what_it_sends_is_right(dtype: torch.dtype) -> None:
    own = functools.partial(gathered, dtype=dtype, owner_keeps=False)
    result = compare(step=own, layouts=["dp=4"], dtype=torch.float32)
    assert result.is_right, str(result)


@pytest.mark.long
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
