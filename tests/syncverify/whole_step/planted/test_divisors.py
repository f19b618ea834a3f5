"""Gradients with a wrong divisor."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.trace.source_lines import code_of_line
from syncverify.whole_step.causes import (
    LacksSum,
    MicroBatchesWeighted,
    RanksScaled,
    Scaled,
    Weighted,
)
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    add,
    average,
    compare,
    mean_square,
    update,
)

Batch = dict[str, torch.Tensor]


def build(width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))


def batch() -> Batch:
    """Make 4 rows of 3 tokens; ranks have unequal numbers of tokens that count."""
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]])
    return {"x": torch.randn(4, 3, 4), "mask": mask.double()}


def summed_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return (model(batch["x"]).squeeze(-1).square() * batch["mask"]).sum()


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return summed_loss(model, batch) / batch["mask"].sum()


def play(step: object, layout: str = "dp=2", **more: Any) -> Parity:
    training = {"build": build, "batch": batch, "loss": loss, **more}
    return compare(step=step, layouts=[layout], **training)


def global_tokens(
    model: nn.Module, batch: Batch, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    """Divide by the tokens of the ranks of `dp`: their tokens differ."""
    _step_with_count(model, batch, mesh, optimizer, ["dp"])


def tokens_of_all_ranks(
    model: nn.Module, batch: Batch, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    """Divide by the tokens of all ranks; two ranks of `tp` have the same tokens."""
    _step_with_count(model, batch, mesh, optimizer, ["dp", "tp"])


def _step_with_count(
    model: nn.Module,
    batch: Batch,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    axes: list[str],
) -> None:
    count = batch["mask"].sum()
    for axis in axes:
        dist.all_reduce(count, group=mesh.get_group(axis))
    (summed_loss(model, batch) / count).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


def mean_of_means(
    model: nn.Module, batch: Batch, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    loss(model, batch).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def divided_twice(
    model: nn.Module, batch: Batch, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    count = batch["mask"].sum()
    dist.all_reduce(count, group=mesh.get_group("dp"))
    (summed_loss(model, batch) / count).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["dp=2", "dp=2,tp=2"])
def test_the_right_divisor_is_silent(layout: str) -> None:
    result = play(global_tokens, layout)
    assert result.is_right, str(result)
    assert result.plays[0].worst_error < 1e-13


@pytest.mark.slow
def test_tokens_that_are_counted_on_ranks_with_the_same_ones_are_named() -> None:
    result = play(tokens_of_all_ranks, "dp=1,tp=2")
    (mistake,) = result.mistakes
    assert mistake.finding.cause == Scaled(0.5, frozenset({frozenset({"tp"})}))
    assert len(mistake.finding.differences) == 4
    assert "divided by 2, the number of ranks of `tp`" in str(result)


@pytest.mark.slow
def test_a_mean_of_means_of_unequal_numbers_of_tokens_is_named() -> None:
    result = play(mean_of_means)
    (mistake,) = result.mistakes
    cause = mistake.finding.cause
    assert isinstance(cause, Weighted)
    assert cause.are_equal
    # The smallest batch that shows it has two rows, with 3 tokens and with 2.
    assert mistake.num_rows == 2
    assert cause.weights == pytest.approx((5 / 6, 5 / 4))
    assert len(mistake.finding.differences) == 4, "the bias of one element too"
    assert "a mean of means" in str(result)


def loss_of_whole_batch(
    model: nn.Module, batch: Batch, mesh: DeviceMesh | None = None
) -> torch.Tensor:
    assert len(batch["x"]) == 4, "needs the whole batch"
    return loss(model, batch)


@pytest.mark.slow
def test_a_loss_that_needs_the_whole_batch_names_a_factor_all_the_same() -> None:
    (mistake,) = play(divided_twice, loss=loss_of_whole_batch).mistakes
    assert mistake.finding.quantity is Quantity.GRADIENT
    assert mistake.finding.cause == Scaled(0.5, frozenset({frozenset({"dp"})}))


def undivided_micro_batches(
    model: nn.Module,
    micro_batches: list[Batch],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    for each in micro_batches:
        loss(model, each).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def whole_batch() -> Batch:
    """Make 12 rows; all tokens count."""
    return {"x": torch.randn(12, 3, 4), "mask": torch.ones(12, 3)}


@pytest.mark.slow
def test_a_divisor_that_leaves_out_the_micro_batches_is_named() -> None:
    result = play(undivided_micro_batches, batch=whole_batch, micro_batches=[3])
    (mistake,) = result.mistakes
    assert mistake.finding.cause == Scaled(3.0, is_number_of_parts=True)
    assert "multiplied by 3, the number of micro-batches" in str(result)
    (place,) = mistake.places
    assert "loss(model, each).backward()" in code_of_line(place)
    assert "by the number of micro-batches (" in str(result)
    assert "(dp=2, 3 micro-batches, step 1, all ranks)" in str(result)


def scaled_by_rank(
    model: nn.Module,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    factors: list[float],
    reduces: bool = True,
) -> None:
    """Multiply the gradients of each rank by another factor."""
    mean_square(model, batch).backward()
    if reduces:
        average(model.parameters(), mesh, "dp")
    for each in model.parameters():
        assert each.grad is not None
        each.grad *= factors[mesh["dp"].get_local_rank()]
    update(optimizer)


@pytest.mark.parametrize(
    ("factors", "wrong", "words"),
    [
        ([1, 0.9], ((1, 0.9),), "multiplied by 0.9 on rank 1"),
        ([1, 3], ((1, 3.0),), "multiplied by 3 on rank 1"),
        ([0.8, 0.9], ((0, 0.8), (1, 0.9)), "by 0.8 on rank 0, by 0.9 on rank 1"),
    ],
)
def test_a_factor_of_some_ranks_is_no_lacking_sum(
    factors: list[float], wrong: tuple[tuple[int, float], ...], words: str
) -> None:
    step = functools.partial(scaled_by_rank, factors=factors)
    result = compare(step=step)
    (mistake,) = result.mistakes
    assert mistake.finding.cause == RanksScaled(wrong)
    assert words in str(result)


@pytest.mark.parametrize("factors", [[1 + 1e-10] * 2, [1, 1 + 1e-10]])
def test_a_tiny_difference_is_no_factor_of_1(factors: list[float]) -> None:
    step = functools.partial(scaled_by_rank, factors=factors)
    text = str(compare(step=step))
    assert "MISTAKE" in text
    assert "by 1 " not in text
    assert "by 1," not in text


def test_a_lacking_sum_may_need_any_factor() -> None:
    step = functools.partial(scaled_by_rank, factors=[0.8, 0.8], reduces=False)
    (mistake,) = compare(step=step).mistakes
    assert mistake.finding.cause == LacksSum(frozenset({"dp"}), 0.625)


def layer_loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return out.square().mean()


def sum_over_ranks(
    model: nn.Module,
    micro_batches: list[torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    """Forget the number of ranks."""
    for each in micro_batches:
        (layer_loss(model, each) / len(micro_batches)).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


def sum_over_micro_batches(
    model: nn.Module,
    micro_batches: list[torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    """Forget the number of micro-batches."""
    for each in micro_batches:
        layer_loss(model, each).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def sum_over_rows(
    model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    """Forget the number of rows of a rank."""
    (layer_loss(model, batch) * len(batch)).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def twice(
    model: nn.Module, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    """Multiply by a number that is none of the training."""
    (layer_loss(model, batch) * 2).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "number", "words"),
    [
        (sum_over_ranks, 2, "by 2, the number of ranks of `dp` ("),
        (sum_over_micro_batches, 2, "by 2, the number of micro-batches ("),
        (sum_over_rows, 1, "by 2, the number of rows of a rank ("),
        (twice, 1, "multiplied by 2 ("),
    ],
)
def test_a_factor_that_is_two_numbers_is_told_apart(
    step: object, number: int, words: str
) -> None:
    """All of these numbers are 2 in a training of two ranks, with two parts or rows each."""
    result = play_layer(step, number)
    assert words in str(result)


def play_layer(step: object, num_micro_batches: int) -> Parity:
    return compare(
        build=functools.partial(nn.Linear, 4, 3),
        batch=lambda: torch.randn(4, 4),
        loss=layer_loss,
        step=step,
        micro_batches=[num_micro_batches],
    )


def for_two_ranks_alone(
    model: nn.Module,
    micro_batches: list[torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    """Forget the number of ranks, in a step that needs two, and two micro-batches."""
    assert mesh["dp"].size() == len(micro_batches) == 2
    sum_over_ranks(model, micro_batches, mesh, optimizer)


def test_a_factor_that_cannot_be_told_apart_is_all_numbers() -> None:
    result = play_layer(for_two_ranks_alone, 2)
    assert "by 2, the number of ranks of `dp` or of micro-batches" in str(result)


def divides_after_each(
    model: nn.Module,
    micro_batches: list[torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
) -> None:
    """Divide by the number of ranks all that was added so far, after each micro-batch."""
    for each in micro_batches:
        (layer_loss(model, each) / len(micro_batches)).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= mesh["dp"].size()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


def test_a_division_after_each_micro_batch_is_to_be_made_once() -> None:
    result = play_layer(divides_after_each, 2)
    assert "count 0.5, 1 times what they should" in str(result)
    assert "divide, or reduce, once per step: after the last micro-batch" in str(result)
    assert play_layer(divides_after_each, 1).is_right


@pytest.mark.parametrize(
    ("is_repeated", "all_factors"),
    [
        (True, [(0.25, 0.5, 1.0), (4.0, 2.0, 1.0), (0.125, 0.25, 0.5)]),
        (False, [(0.5, 0.5, 1.0), (0.0, 1.0), (1.0, 0.0)]),
    ],
)
def test_factors_of_micro_batches_tell_what_each_of_them_repeats(
    *, is_repeated: bool, all_factors: list[tuple[float, ...]]
) -> None:
    found = {MicroBatchesWeighted(each).is_repeated for each in all_factors}
    assert found == {is_repeated}
