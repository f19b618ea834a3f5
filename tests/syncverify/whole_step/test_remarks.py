"""Remarks of the plays of a training: no mistakes, and each printed once."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.whole_step.page import page_of
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    average,
    compare,
    mean_square,
    update,
)

pytestmark = pytest.mark.slow


def step(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    waits: bool = False,
) -> None:
    value = mean_square(model, batch)
    value.backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)
    logged = value.detach().clone()
    dist.all_reduce(logged, group=mesh.get_group("dp"), async_op=not waits)


def test_a_work_that_nothing_waits_for_is_one_remark_of_all_layouts() -> None:
    result = compare(step=step, layouts=["dp=2", "dp=4"])
    assert result.is_right, str(result)
    text, (remark,) = str(result), result.to_json()["remarks"]
    assert remark.startswith("nothing waits for all_reduce at ")
    assert text.count(f"REMARK: {remark}") == text.count("REMARK") == 1
    assert page_of(result).count("Remark: nothing waits for all_reduce") == 1


def test_a_step_that_waits_has_no_remark() -> None:
    result = compare(step=functools.partial(step, waits=True))
    assert result.is_right, str(result)
    assert result.remarks == ()
    assert "REMARK" not in str(result)
