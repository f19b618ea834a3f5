"""Gradients of all ones: the norm is the root of the number of elements."""

import functools
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import (
    NormOf,
    NormWithout,
    NotCleared,
    NotClipped,
    OtherCoefficient,
    Scaled,
    StepMistake,
)
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted import expert_parallel
from tests.syncverify.faces.whole_step.planted.expert_parallel import Experts
from tests.syncverify.faces.whole_step.planted.steps import average, compare, update

CLIP = 0.5
NUM_ELEMENTS = 3 * 4 + 4 + 4 * 2 + 2


def norm_of(parameters: list[nn.Parameter]) -> torch.Tensor:
    gradients = [each.grad for each in parameters if each.grad is not None]
    return torch.stack([each.square().sum() for each in gradients]).sum().sqrt()


def step(model, batch, mesh, optimizer, scaler, *, wrong="", is_seen=True):
    loss = model(batch).square().mean()
    (loss if scaler is None else scaler.scale(loss)).backward()
    average(model.parameters(), mesh, "dp")
    if scaler is not None and wrong != "late unscale":
        scaler.unscale_(optimizer)
    parameters = [*model.parameters()]
    counted = parameters[:-1] if wrong == "without" else parameters
    norm = norm_of(counted)
    if wrong == "sum of norms":
        norm = torch.stack([norm_of([each]) for each in parameters]).sum()
    limit = math.inf if wrong == "no clip" else CLIP
    if wrong == "apart":
        for each in parameters:
            nn.utils.clip_grad_norm_([each], CLIP)
    elif wrong == "skip" and norm > 1000:
        optimizer.zero_grad()
    elif is_seen:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    else:
        expert_parallel.scale(model, norm, limit)
    if scaler is None:
        optimizer.step()
        if wrong != "not cleared":
            optimizer.zero_grad()
        return {}
    if wrong == "late unscale":
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return {}


def play(wrong: str, **more: Any) -> Parity:
    own = functools.partial(step, wrong=wrong, is_seen=more.pop("is_seen", True))
    return compare(step=own, loss=None, clip=CLIP, **more)


def scaler() -> GradScaler:
    return GradScaler("cpu", init_scale=1024.0)


@pytest.mark.long
@pytest.mark.parametrize(("is_seen", "more"), [(True, {"scaler": scaler}), (False, {})])
def test_a_right_norm_is_silent(more: dict[str, Any], *, is_seen: bool) -> None:
    result = play("", is_seen=is_seen, **more)
    assert result.is_right, str(result)
    (ones,) = [
        e for e in result.plays if e.variation and e.variation.word == "all-ones"
    ]
    assert ones.is_tried
    assert not ones.unexplained
    assert ones.num_values == 4 + is_seen
    assert ones.worst_error < 1e-6


@pytest.mark.parametrize(
    ("wrong", "quantity", "num_values", "cause"),
    [
        ("without", Quantity.NORM, 1, NormWithout(("2.bias",))),
        ("late unscale", Quantity.NORM, 1, Scaled(1024.0, is_scale=True)),
        ("no clip", Quantity.STEPPED, 4, NotClipped(0.0)),
        ("not cleared", Quantity.GRADIENT, 4, NotCleared()),
    ],
)
def test_a_mistake_in_all_layouts_alike_is_named(
    wrong: str, quantity: Quantity, num_values: int, cause: StepMistake
) -> None:
    more = {"scaler": scaler} if wrong == "late unscale" else {}
    result = play(wrong, **more)
    (mistake,) = result.mistakes
    found = mistake.finding
    assert result.plays[0].is_right, "the batch itself does not show it"
    assert found.quantity is quantity
    assert found.num_values == num_values, "values of this quantity alone"
    assert type(found.cause) is type(cause)
    if not isinstance(cause, NotClipped):
        assert found.cause == cause
    assert "all elements of gradients are one number" in str(result)


@pytest.mark.slow
def test_a_norm_in_clipping_of_the_users_own_is_named() -> None:
    (mistake,) = play("without", is_seen=False).mistakes
    found = mistake.finding
    assert found.quantity is Quantity.STEPPED
    assert len(found.differences) == 4
    assert isinstance(found.cause, OtherCoefficient)
    assert found.cause.norm == NormWithout(("2.bias",))


def test_another_norm_is_noted_and_no_mistake() -> None:
    result = play("sum of norms")
    assert result.is_right, str(result)
    total = 12**0.5 + 4**0.5 + 8**0.5 + 2**0.5
    values = f"is [{total:.6g}], and not [{NUM_ELEMENTS**0.5:.6g}]"
    assert values in str(result)


@pytest.mark.slow
def test_parts_that_are_clipped_apart_are_not_judged() -> None:
    result = play("apart")
    assert result.is_right, str(result)
    assert "all-ones: not tried, since parameters are clipped apart" in str(result)


def test_a_step_that_skips_large_norms_is_silent() -> None:
    result = play("skip")
    assert result.is_right, str(result)
    assert result.plays[-1].num_values == 1


class Skipping(Experts):
    """Experts beside a layer that tokens without an expert go through alone."""

    def forward(self, x: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        return super().forward(x, expert) + self.layer(x)


def idle() -> dict[str, torch.Tensor]:
    """Make a batch without tokens for experts: their gradients are zero, and so is their norm."""
    return {**expert_parallel.batch(), "expert": torch.full((8, 2), -1)}


def expert_step(model, batch, mesh, optimizer, *, is_right):
    expert_parallel.backward(model, batch, mesh)
    norm = (expert_parallel.right_norm if is_right else expert_parallel.norm_of_own)(
        model, mesh
    )
    nn.utils.clip_grads_with_norm_(model.parameters(), CLIP, norm)
    update(optimizer)


@pytest.mark.long
@pytest.mark.parametrize("is_right", [True, False])
def test_the_norm_of_experts_without_tokens_is_judged(*, is_right: bool) -> None:
    training = expert_parallel.TRAINING | {"build": Skipping, "batch": idle}
    own = functools.partial(expert_step, is_right=is_right)
    result = compare(**training, layouts=["dp=2,ep=2"], step=own, clip=CLIP)
    assert result.is_right == is_right
    assert result.plays[0].is_right, "the batch itself does not show it"
    assert "not shown: experts" in str(result)
    if not is_right:
        (mistake,) = result.mistakes
        cause = NormOf(("experts",), frozenset({"ep"}), is_missing=True)
        assert mistake.finding.cause == cause
