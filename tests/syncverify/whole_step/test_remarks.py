"""Remarks of the plays of a training: no mistakes, and each printed once."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify import parity
from syncverify.whole_step.page import page_of
from syncverify.whole_step.parity import Parity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    average,
    sgd,
    unchanged,
    update,
)

pytestmark = pytest.mark.slow


def build() -> nn.Module:
    return nn.Linear(3, 2)


def batch() -> torch.Tensor:
    return torch.randn(4, 3)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return out.square().mean()


def step(
    model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    value = loss(model, batch)
    value.backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)
    dist.all_reduce(value.detach().clone(), group=mesh.get_group("dp"), async_op=True)


def waiting_step(
    model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    value = loss(model, batch)
    value.backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)
    dist.all_reduce(value.detach(), group=mesh.get_group("dp"))


def play(own: object) -> Parity:
    return parity(
        build,
        unchanged,
        batch,
        loss,
        step=own,
        optimizer=sgd,
        layouts=["dp=2", "dp=4"],
        device="cpu",
    )


def test_a_work_that_nothing_waits_for_is_one_remark_of_all_layouts() -> None:
    result = play(step)
    assert result.is_right, str(result)
    text, (remark,) = str(result), result.to_json()["remarks"]
    assert remark.startswith("nothing waits for all_reduce at ")
    assert text.count(f"REMARK: {remark}") == text.count("REMARK") == 1
    assert page_of(result).count("Remark: nothing waits for all_reduce") == 1


def test_a_step_that_waits_has_no_remark() -> None:
    result = play(waiting_step)
    assert result.is_right, str(result)
    assert result.remarks == ()
    assert "REMARK" not in str(result)
