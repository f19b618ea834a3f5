"""Mistakes before the first step, and mistakes that show only after it."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import LacksSum, RanksDiffer
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import (
    average,
    averaged_step,
    compare,
    mean_square,
    unchanged,
    update,
)

pytestmark = pytest.mark.slow


class Adapted(nn.Module):
    """A frozen layer with a pair of LoRA; the second factor starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).requires_grad_(requires_grad=False)
        self.first = nn.Parameter(torch.randn(4, 2))
        self.second = nn.Parameter(torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + x @ self.first @ self.second


def batch() -> torch.Tensor:
    return torch.randn(4, 4)


def without_the_first_factor(model, batch, mesh, optimizer):
    mean_square(model, batch).backward()
    average([model.second], mesh, "dp")
    update(optimizer)


def of_own_seed(model: nn.Module, mesh: DeviceMesh) -> None:
    torch.manual_seed(dist.get_rank())
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape))


def _play(parallelize: object, step: object = None, steps: int = 2) -> Parity:
    training = {"build": Adapted, "batch": batch, "step": step, "steps": steps}
    return compare(parallelize=parallelize, **training)


@pytest.mark.long
def test_a_factor_that_is_not_reduced_shows_in_the_second_step() -> None:
    result = _play(unchanged, without_the_first_factor)
    (mistake,) = result.mistakes
    assert mistake.finding.step == 1
    assert [each.name for each in mistake.finding.differences] == ["first"]
    assert mistake.finding.cause == LacksSum(frozenset({"dp"}), 0.5)


def test_one_step_says_which_parameters_it_does_not_show() -> None:
    result = _play(unchanged, without_the_first_factor, steps=1)
    assert result.plays[0].zero == ("first",)
    assert "not shown: first: gradients are zero on one rank" in str(result)


def test_a_right_adapter_is_silent() -> None:
    result = _play(unchanged, averaged_step)
    assert result.is_right, str(result)
    assert not result.plays[0].zero


@pytest.mark.long
def test_replicas_that_start_unequal_are_named() -> None:
    result = _play(of_own_seed, averaged_step)
    (mistake,) = result.mistakes
    assert mistake.finding.quantity is Quantity.START
    assert mistake.finding.cause == RanksDiffer((0, 1), frozenset({"dp"}))
    assert "copies differ over `dp`" in str(result)
    assert "build with one seed, or broadcast them" in str(result)


class Scaled(nn.Module):
    """A layer with a buffer of constants."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("scale", torch.linspace(1, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


def after_meta(model: nn.Module, *, sends_buffers: bool) -> nn.Module:
    """Return a model without memory at first, which gets its values again."""
    state = {name: each.detach().clone() for name, each in model.state_dict().items()}
    if not sends_buffers:
        del state["scale"]
    model.to("meta").to_empty(device="cpu")
    model.load_state_dict(state, strict=False)
    return DistributedDataParallel(model)


@pytest.mark.parametrize("sends_buffers", [True, False])
def test_buffers_that_nobody_sends_after_to_empty_are_named(
    *, sends_buffers: bool
) -> None:
    parallelize = functools.partial(after_meta, sends_buffers=sends_buffers)
    outcome = compare(build=Scaled, batch=batch, parallelize=parallelize)
    (play,) = outcome.plays
    found = [each.violation for each in play.simulation.violations]
    names = [] if sends_buffers else ["memory_is_written_before_it_is_read"]
    assert [each.property for each in found] == names
    assert not outcome.mistakes
    assert sends_buffers or "in after_meta and not written" in found[0].summary
