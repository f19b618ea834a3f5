"""Several mistakes in one step are several findings, and a consequence is none."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify import parity
from syncverify.whole_step.causes import (
    NotCleared,
    NotClipped,
    NotUpdated,
    Scaled,
    StepMistake,
)
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    add,
    average,
    sgd,
    unchanged,
)

LIMIT = 0.1


def build(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))


def batch() -> torch.Tensor:
    return torch.randn(4, 4)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return 3 * (out - 1).square().mean()


def step(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    divides: bool = True,
    clips: bool = True,
    clears: bool = True,
) -> None:
    loss(model, batch).backward()
    reduce = average if divides else add
    reduce(model.parameters(), mesh, "dp")
    norm = nn.utils.get_total_norm(
        [each.grad for each in model.parameters() if each.grad is not None]
    )
    # The program believes that it clips: the norm is computed, and thrown away.
    limit = LIMIT if clips else float("inf")
    nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    optimizer.step()
    if clears:
        optimizer.zero_grad()


def most_parameters(model: nn.Module) -> Optimizer:
    """Make an optimizer; on the mesh it lacks the last bias."""
    parameters = [*model.parameters()]
    return sgd(parameters[:-1] if hasattr(model, "is_on_mesh") else parameters)


def mark(model: nn.Module, mesh: DeviceMesh) -> None:
    model.is_on_mesh = True  # type: ignore[assignment]


def _play(wrong: object, parallelize: object = unchanged, **more: object) -> Parity:
    return parity(
        build,
        parallelize,
        batch,
        loss,
        layouts=["dp=2"],
        step=wrong,
        clip=LIMIT,
        device="cpu",
        **{"optimizer": sgd, **more},  # type: ignore[arg-type]
    )


def _kinds(result: Parity) -> list[tuple[Quantity, type[StepMistake]]]:
    return [(e.finding.quantity, type(e.finding.cause)) for e in result.mistakes]


@pytest.mark.slow
def test_a_wrong_gradient_is_one_mistake_through_all_later_values() -> None:
    result = _play(functools.partial(step, divides=False))
    assert _kinds(result) == [(Quantity.GRADIENT, Scaled)], str(result)
    follows = result.mistakes[0].finding.follows
    assert follows[0] is Quantity.NORM


@pytest.mark.slow
def test_clipping_that_is_not_applied_shows_behind_a_wrong_gradient() -> None:
    result = _play(functools.partial(step, divides=False, clips=False))
    assert _kinds(result) == [
        (Quantity.GRADIENT, Scaled),
        (Quantity.STEPPED, NotClipped),
    ], str(result)


@pytest.mark.slow
def test_a_parameter_that_the_optimizer_lacks_shows_behind_both() -> None:
    wrong = functools.partial(step, divides=False, clips=False)
    result = _play(wrong, mark, optimizer=most_parameters)
    assert _kinds(result) == [
        (Quantity.GRADIENT, Scaled),
        (Quantity.STEPPED, NotUpdated),
        (Quantity.STEPPED, NotClipped),
    ], str(result)
    lacking = result.mistakes[1].finding
    assert [each.name for each in lacking.differences] == ["2.bias"]
    assert "give these parameters to the optimizer" in str(result)


@pytest.mark.slow
def test_gradients_that_are_not_cleared_show_behind_clipping_of_the_step_before() -> (
    None
):
    result = _play(functools.partial(step, clips=False, clears=False))
    assert _kinds(result) == [
        (Quantity.STEPPED, NotClipped),
        (Quantity.GRADIENT, NotCleared),
    ], str(result)
    assert [each.finding.step for each in result.mistakes] == [0, 1]


@pytest.mark.slow
def test_gradients_that_are_not_cleared_show_behind_a_wrong_divisor() -> None:
    result = _play(functools.partial(step, divides=False, clears=False))
    assert _kinds(result) == [
        (Quantity.GRADIENT, Scaled),
        (Quantity.GRADIENT, NotCleared),
    ], str(result)


@pytest.mark.slow
def test_the_step_without_a_mistake_is_silent() -> None:
    result = _play(step)
    assert result.is_right, str(result)
