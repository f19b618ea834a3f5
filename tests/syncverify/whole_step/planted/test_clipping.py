"""Mistakes between right gradients and the optimizer."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh

from syncverify import parity
from syncverify.whole_step.causes import NotClipped, Scaled
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    average,
    sgd,
    unchanged,
    update,
)

LIMIT = 0.1


def build(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))


def batch() -> torch.Tensor:
    return torch.randn(4, 4)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return 3 * (out - 1).square().mean()


def scaler() -> GradScaler:
    return GradScaler("cpu", init_scale=1024.0)


def scaled_step(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    scaler: GradScaler,
    *,
    unscales_late: bool = False,
) -> None:
    scaler.scale(loss(model, batch)).backward()
    average(model.parameters(), mesh, "dp")
    if not unscales_late:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def clipped_step(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    applies: bool = True,
) -> dict[str, torch.Tensor]:
    loss(model, batch).backward()
    average(model.parameters(), mesh, "dp")
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if applies:
        nn.utils.clip_grads_with_norm_(model.parameters(), LIMIT, norm)
    update(optimizer)
    return {"norm": norm}


def step_that_clips_copies(
    model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    """Give clipping gradients where it expects parameters, as in transformers#46113."""
    loss(model, batch).backward()
    average(model.parameters(), mesh, "dp")
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    copies = [nn.Parameter(each.clone()) for each in gradients]
    for copy, gradient in zip(copies, gradients, strict=True):
        copy.grad = gradient.clone()
    nn.utils.clip_grad_norm_(copies, LIMIT)
    update(optimizer)


def _play(step: object, **more: object) -> Parity:
    return parity(
        build,
        unchanged,
        batch,
        loss,
        layouts=["dp=2"],
        step=step,
        clip=LIMIT,
        optimizer=sgd,
        device="cpu",
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.slow
def test_unscaling_after_clipping_is_named() -> None:
    late = functools.partial(scaled_step, unscales_late=True)
    result = _play(late, scaler=scaler)
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
    result = _play(scaled_step, scaler=scaler)
    assert result.is_right, str(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", [functools.partial(clipped_step, applies=False), step_that_clips_copies]
)
def test_a_coefficient_that_is_never_applied_is_named(wrong: object) -> None:
    result = _play(wrong)
    (mistake,) = result.mistakes
    assert isinstance(mistake.finding.cause, NotClipped)
    assert mistake.finding.quantity is Quantity.STEPPED
    assert len(mistake.finding.differences) == 4
    assert "of clipping is not applied" in str(result)


@pytest.mark.slow
def test_a_coefficient_that_is_applied_is_silent() -> None:
    result = _play(clipped_step)
    assert result.is_right, str(result)


TOO_LARGE = 1000.0


def step_with_a_limit(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    clips: bool = True,
) -> None:
    """Clip by a limit that no norm reaches."""
    loss(model, batch).backward()
    average(model.parameters(), mesh, "dp")
    if clips:
        nn.utils.clip_grad_norm_(model.parameters(), TOO_LARGE)
    update(optimizer)


def _play_limit(
    step: object, plain: object = loss, clip: float | None = None
) -> Parity:
    return parity(
        build,
        unchanged,
        batch,
        plain,  # type: ignore[arg-type]
        layouts=["dp=2"],
        step=step,  # type: ignore[arg-type]
        clip=clip,
        optimizer=sgd,
        device="cpu",
    )


@pytest.mark.slow
def test_clipping_that_no_norm_reaches_is_tried_with_large_gradients() -> None:
    forgets = functools.partial(step_with_a_limit, clips=False)
    (mistake,) = _play_limit(forgets, clip=TOO_LARGE).mistakes
    assert isinstance(mistake.finding.cause, NotClipped)
    right = _play_limit(step_with_a_limit, clip=TOO_LARGE)
    assert right.is_right, str(right)
    assert "never clipped" not in str(right)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [loss, None])
def test_clipping_that_is_never_tried_is_said_to_be_not_shown(plain: object) -> None:
    text = str(_play_limit(step_with_a_limit, plain))
    assert "not shown: clipping on dp=2 never clipped: norms up to " in text
    assert "max_norm 1000" in text
    without = functools.partial(step_with_a_limit, clips=False)
    assert "never clipped" not in str(_play_limit(without, plain))
