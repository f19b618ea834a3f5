"""Unscaling after clipping, between right gradients and the optimizer."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh

from syncverify.whole_step.causes import Scaled
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    average,
    compare,
    mean_square,
)

LIMIT = 0.1


def step(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    scaler: GradScaler,
    *,
    unscales_late: bool = False,
) -> None:
    scaler.scale(mean_square(model, batch)).backward()
    average(model.parameters(), mesh, "dp")
    if not unscales_late:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


play = functools.partial(
    compare, clip=LIMIT, scaler=lambda: GradScaler("cpu", init_scale=1024.0)
)


@pytest.mark.slow
def test_unscaling_after_clipping_is_named() -> None:
    result = play(step=functools.partial(step, unscales_late=True))
    (mistake,) = result.mistakes
    cause = mistake.finding.cause
    assert isinstance(cause, Scaled)
    assert cause.is_scale
    assert mistake.finding.quantity is Quantity.GRADIENT
    assert Quantity.STEPPED in mistake.finding.follows
    assert "multiplied by the scale of the loss, 1024" in str(result)
    assert "unscale gradients before they are clipped" in str(result)


@pytest.mark.slow
def test_unscaling_before_clipping_is_silent() -> None:
    result = play(step=step)
    assert result.is_right, str(result)
