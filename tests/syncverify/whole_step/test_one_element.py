"""A tensor of one element is a multiple of any other, which proves no mistake."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional
from torch.optim import Optimizer

from syncverify import parity
from syncverify.whole_step.causes import RanksDiffer


def _build() -> nn.Module:
    return nn.Linear(1, 1, bias=False)


def _loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(model(batch), batch)


def _step(
    model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    _loss(model, batch).backward()
    for each in model.parameters():
        assert each.grad is not None
        each.grad += 0.01 * (1 + mesh.get_local_rank("dp"))
    optimizer.step()
    optimizer.zero_grad()


def test_one_element_is_no_part_of_a_sum_by_a_factor_of_no_axis() -> None:
    result = parity(
        _build,
        lambda model: None,
        lambda: torch.randn(4, 1),
        _loss,
        step=_step,
        layouts=["dp=2"],
        device="cpu",
        steps=1,
    )
    (mistake,) = result.mistakes
    assert mistake.finding.cause == RanksDiffer((0, 1), frozenset({"dp"}))
