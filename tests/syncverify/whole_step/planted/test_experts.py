"""Experts: the group of their gradients, and their part of the norm."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.whole_step.causes import NormOf, OtherCoefficient, ReducedOver
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted import expert_parallel
from tests.syncverify.whole_step.planted.expert_parallel import Experts
from tests.syncverify.whole_step.planted.steps import Optimizer, compare, update

Norm = Callable[[Experts, DeviceMesh], torch.Tensor]
LIMIT = 0.5


def step(
    model: Experts,
    batch: Any,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    axes: tuple[str, ...] = ("dp",),
    norm: Norm = expert_parallel.right_norm,
    is_seen: bool = True,
) -> None:
    expert_parallel.backward(model, batch, mesh, axes)
    total = norm(model, mesh)
    if is_seen:
        nn.utils.clip_grads_with_norm_(model.parameters(), LIMIT, total)
    else:
        expert_parallel.scale(model, total, LIMIT)
    update(optimizer)


def play(wrong: object, layout: str = "dp=2,ep=2") -> Parity:
    return compare(**expert_parallel.TRAINING, layouts=[layout], step=wrong, clip=LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "is_seen"), [("dp=2,ep=2", True), ("dp=1,ep=4", False)]
)
def test_right_experts_are_silent(layout: str, *, is_seen: bool) -> None:
    result = play(functools.partial(step, is_seen=is_seen), layout)
    assert result.is_right, str(result)
    assert result.plays[0].worst_error < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("axes", [("ep",), ("dp", "ep")])
def test_experts_that_are_reduced_over_the_wrong_group_are_named(
    axes: tuple[str, ...],
) -> None:
    result = play(functools.partial(step, axes=axes))
    (mistake,) = result.mistakes
    assert [each.name for each in mistake.finding.differences] == ["experts"]
    cause = mistake.finding.cause
    assert isinstance(cause, ReducedOver), cause
    assert "ep" in cause.axes
    assert cause.right <= {"dp"}
    assert "added over" in str(result)
    assert "`ep`" in str(result)


@pytest.mark.slow
def test_a_norm_that_leaves_out_the_axis_of_experts_is_named() -> None:
    result = play(functools.partial(step, norm=expert_parallel.norm_of_own))
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.NORM
    cause = NormOf(("experts",), frozenset({"ep"}), is_missing=True)
    assert mistake.finding.cause == cause
    assert "does not add the squares of experts over `ep`" in str(result)


@pytest.mark.slow
def test_the_same_norm_in_clipping_of_the_users_own_is_named() -> None:
    wrong = functools.partial(step, norm=expert_parallel.norm_of_own, is_seen=False)
    result = play(wrong)
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.STEPPED
    cause = mistake.finding.cause
    assert isinstance(cause, OtherCoefficient)
    assert cause.norm == NormOf(("experts",), frozenset({"ep"}), is_missing=True)
    assert "does not add the squares of experts over `ep`" in str(result)
