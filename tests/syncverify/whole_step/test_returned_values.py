"""A norm in any form that a step may return it in, and the bound of its dtype."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    averaged_backward,
    compare,
    update,
)

pytestmark = pytest.mark.slow
Form = Callable[[torch.Tensor, DeviceMesh], Any]
CLIP = 0.5


def step(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    form: Form,
    factor: float,
) -> dict[str, Any]:
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


@pytest.mark.parametrize("form", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_norm_is_right_in_the_dtype_that_it_went_through(form: Form) -> None:
    result = play(form)
    assert result.is_right, str(result)


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


def clipping_in_float32(
    model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    averaged_backward(model, batch, mesh)
    squares = torch.zeros(1)
    for each in model.parameters():
        assert each.grad is not None
        squares += each.grad.square().sum()
    norm = squares.sqrt().item()
    for each in model.parameters():
        assert each.grad is not None
        each.grad.mul_(min(1.0, CLIP / (norm + 1e-6)))
    update(optimizer)


def test_a_coefficient_of_float32_clips_within_the_bound_of_float32() -> None:
    result = compare(step=clipping_in_float32, clip=CLIP)
    assert result.is_right, str(result)


def test_scalars_in_float32_are_named_where_their_bound_counts() -> None:
    note = "note: scalars of dp=2 are in float32, and values have the bound of its rounding"
    assert note in str(play(RIGHT["item of float32"]))
    assert note not in str(play(RIGHT["item"]))
