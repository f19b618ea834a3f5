"""Numbers of tokens that differ between ranks, or are zero."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.errors import UsageError
from syncverify.whole_step.causes import NotANumber, Weighted
from syncverify.whole_step.data import EmptyPart, UnequalTokens
from syncverify.whole_step.parity import Parity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    add,
    average,
    compare,
    update,
)

Batch = dict[str, torch.Tensor]


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))


def batch() -> Batch:
    """Make 8 rows; all tokens count."""
    return {"x": torch.randn(8, 4, 3), "mask": torch.ones(8, 4)}


def summed(model: nn.Module, batch: Batch) -> torch.Tensor:
    return (model(batch["x"]).squeeze(-1).square() * batch["mask"]).sum()


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return summed(model, batch) / batch["mask"].sum()


def right(
    model: nn.Module,
    batch: Batch,
    micro_batches: list[Batch],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    count = batch["mask"].sum()
    dist.all_reduce(count, group=mesh.get_group("dp"))
    for each in micro_batches:
        (summed(model, each) / count).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


def mean_of_ranks(
    model: nn.Module,
    batch: Batch,
    micro_batches: list[Batch],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    count = batch["mask"].sum().clamp(min=1)
    for each in micro_batches:
        (summed(model, each) / count).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def divided_by_own_count(
    model: nn.Module,
    batch: Batch,
    micro_batches: list[Batch],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    """Weigh micro-batches rightly; one without tokens is 0 divided by 0."""
    count = batch["mask"].sum()
    dist.all_reduce(count, group=mesh.get_group("dp"))
    for each in micro_batches:
        (loss(model, each) * (each["mask"].sum() / count)).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


def _play(
    step: object, *, key: str = "mask", numbers: tuple[int, ...] = (2,)
) -> Parity:
    training = {"build": build, "batch": batch, "loss": loss, "step": step}
    return compare(**training, micro_batches=numbers, weights=key)


@pytest.mark.slow
def test_a_right_step_is_silent_with_any_number_of_tokens() -> None:
    result = _play(right, numbers=(1, 2))
    assert result.is_right, str(result)
    words = [each.variation and each.variation.word for each in result.plays]
    assert words == [None, "unequal-tokens", "padding"] * 2


@pytest.mark.slow
def test_a_mean_of_means_shows_with_unequal_numbers_of_tokens_alone() -> None:
    result = _play(mean_of_ranks, numbers=(1,))
    assert [each.is_right for each in result.plays] == [True, False, False]
    (mistake,) = result.mistakes
    assert mistake.variation == UnequalTokens("mask")
    cause = mistake.finding.cause
    assert isinstance(cause, Weighted)
    assert cause.are_equal
    assert "data:     ranks have unequal numbers of tokens" in str(result)


@pytest.mark.slow
def test_a_padding_micro_batch_shows_a_division_by_zero() -> None:
    result = _play(divided_by_own_count)
    assert [each.is_right for each in result.plays] == [True, True, False]
    (mistake,) = result.mistakes
    assert mistake.variation == EmptyPart("mask", 4)
    assert mistake.finding.cause == NotANumber((0, 1))
    assert "the last micro-batch is padding ('mask' is 0)" in str(result)


def test_a_key_that_the_batch_lacks_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"expected batch.. to return a dict.*'weight'"
    ):
        _play(right, key="weight")
