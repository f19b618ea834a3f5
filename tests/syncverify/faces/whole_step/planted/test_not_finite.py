"""Overflow and NaN on one rank: all ranks have to decide alike."""

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from syncverify.faces.whole_step.data import NotFinite
from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import Decided
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted import expert_parallel
from tests.syncverify.faces.whole_step.planted.steps import (
    Optimizer,
    average,
    averaged_step,
    compare,
    mean_square,
    unchanged,
)

pytestmark = pytest.mark.slow


class LocalScaler(GradScaler):
    """A scaler that looks at a rank's own gradients: right without shards alone."""


class SharedScaler(GradScaler):
    """A scaler: any rank's overflow lets all ranks skip."""

    def unscale_(self, optimizer: Optimizer) -> None:
        super().unscale_(optimizer)
        found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        for each in found.values():
            dist.all_reduce(each, op=dist.ReduceOp.MAX)


def make(kind: type[GradScaler], mesh: DeviceMesh | None = None) -> GradScaler:
    """Make the scaler; one rank has no group."""
    made = kind if mesh is not None else GradScaler
    return made("cpu", init_scale=1024.0)


def step(model, batch, mesh, optimizer, scaler):
    out = expert_parallel.loss(model, batch) / (mesh["dp"].size() * mesh["ep"].size())
    scaler.scale(out).backward()
    expert_parallel.add(model.layer.parameters(), mesh, "dp", "ep")
    expert_parallel.add([model.experts], mesh, "dp")
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def _play(kind: type[GradScaler], made: object = step, **more: Any) -> Parity:
    scaler = functools.partial(make, kind)
    training = expert_parallel.TRAINING | {"layouts": ["dp=1,ep=2"], **more}
    return compare(**training, step=made, scaler=scaler)


@pytest.mark.long
def test_a_decision_of_each_rank_alone_is_named() -> None:
    result = _play(LocalScaler)
    words = [each.variation and each.variation.word for each in result.plays]
    assert words == [None, "overflow", "nan", "local-overflow"]
    assert [each.is_right for each in result.plays] == [True, False, False, True]
    (mistake,) = result.mistakes
    assert mistake.variation == NotFinite("experts", float("inf"))
    assert mistake.finding.quantity is Quantity.SKIPPED
    assert mistake.finding.cause == Decided((0,), 0)
    assert "inf in the last element of the gradient of experts" in str(result)
    assert "let all ranks decide together" in str(result)


def step_with_a_schedule(model, batch, mesh, optimizer, scaler, schedule):
    step(model, batch, mesh, optimizer, scaler)
    schedule.step()


STEP_LR = functools.partial(torch.optim.lr_scheduler.StepLR, step_size=1)


@pytest.mark.long
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("made", "more"), [(step, {}), (step_with_a_schedule, {"schedule": STEP_LR})]
)
def test_a_decision_of_all_ranks_is_silent(made: object, more: dict[str, Any]) -> None:
    """torch warns of a schedule before a step, and no step was made: we let it be skipped."""
    result = _play(SharedScaler, made, **more)
    assert result.is_right, str(result)
    assert [each.is_tried for each in result.plays] == [True, True, True, True]


def unscaled_before_the_sum(model, batch, mesh, optimizer, scaler):
    """Look for infinity in the rank's own gradients, and add them later."""
    scaler.scale(mean_square(model, batch)).backward()
    scaler.unscale_(optimizer)
    average(model.parameters(), mesh, "dp")
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def without_a_scaled_loss(model, batch, mesh, optimizer, scaler):
    """Multiply the loss by the scale without a call of `scale()` of the scaler."""
    scale = scaler.get_scale()
    (mean_square(model, batch) * scale).backward()
    average(model.parameters(), mesh, "dp")
    for each in model.parameters():
        each.grad /= scale
    optimizer.step()
    optimizer.zero_grad()


def sharded(model: nn.Module, mesh: DeviceMesh) -> None:
    """Let FSDP2 shard a layer of 3 rows: the last rank of 4 has none."""
    fully_shard(model, mesh=mesh["dp"])


def _play_layer(
    made: object, scaler: object, parallelize: object = unchanged, **more: Any
) -> Parity:
    training = {
        "build": functools.partial(nn.Linear, 4, 3),
        "parallelize": parallelize,
        "batch": lambda: torch.randn(4, 4),
        "step": made,
        "scaler": scaler,
    }
    return compare(**(training | more))


@pytest.mark.long
def test_a_decision_by_own_gradients_before_the_sum_is_named() -> None:
    result = _play_layer(unscaled_before_the_sum, functools.partial(make, LocalScaler))
    (mistake,) = result.mistakes
    assert mistake.finding.cause == Decided((0,), 0)
    assert [each.is_right for each in result.plays] == [True, True, True, False]
    assert "the ranks with the last part of the batch alone" in str(result)
    alone = _play_layer(
        unscaled_before_the_sum, functools.partial(make, LocalScaler), loss=None
    )
    assert not alone.is_right, "without a loss too"


@pytest.mark.long
@pytest.mark.parametrize(
    ("made", "kind", "parallelize", "layout"),
    [
        (unscaled_before_the_sum, SharedScaler, unchanged, "dp=2"),
        (None, GradScaler, sharded, "dp=4"),
    ],
)
def test_a_decision_of_all_ranks_on_a_local_overflow_is_silent(
    made: object, kind: type[GradScaler], parallelize: object, layout: str
) -> None:
    scaler = functools.partial(make, kind)
    result = _play_layer(made, scaler, parallelize, layouts=[layout])
    assert result.is_right, str(result)
    assert [each.is_tried for each in result.plays] == [True, True, True, True]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (averaged_step, "overflow: not tried, since the step does not call unscale_()"),
        (
            without_a_scaled_loss,
            "local-overflow: not tried, since the step does not call scale()",
        ),
    ],
)
def test_a_variation_that_the_scaler_does_not_see_is_said_to_be_not_tried(
    made: object, words: str
) -> None:
    result = _play_layer(made, functools.partial(make, GradScaler))
    assert result.is_right
    assert words in str(result)
