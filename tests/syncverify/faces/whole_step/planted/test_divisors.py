"""Gradients with a wrong divisor."""

import functools

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import (
    MicroBatchesWeighted,
    RanksDiffer,
    RanksScaled,
    Scaled,
)
from syncverify.trace.source_lines import code_of_line
from tests.syncverify.faces.whole_step.planted.steps import (
    Step,
    add,
    average,
    compare,
    scale_gradients,
    update,
    with_gradients,
)


def scaled_by_rank(factors: list[float]) -> Step:
    return with_gradients(functools.partial(scale_gradients, factors=factors))


@pytest.mark.long
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
    result = compare(step=scaled_by_rank(factors))
    (mistake,) = result.mistakes
    assert mistake.finding.cause == RanksScaled(wrong)
    assert words in str(result)


@pytest.mark.long
@pytest.mark.parametrize("factors", [[1 + 1e-10] * 2, [1, 1 + 1e-10]])
def test_a_tiny_difference_is_no_factor_of_1(factors: list[float]) -> None:
    text = str(compare(step=scaled_by_rank(factors)))
    assert "1 VIOLATION" in text
    assert "by 1 " not in text
    assert "by 1," not in text


def shift_by_rank(model: nn.Module, mesh: DeviceMesh) -> None:
    for each in model.parameters():
        each.grad += 0.01 * (1 + mesh.get_local_rank("dp"))


def test_one_element_is_no_part_of_a_sum_by_a_factor_of_no_axis() -> None:
    """A tensor of one element is a multiple of any other, which proves no factor."""
    (mistake,) = compare(
        build=functools.partial(nn.Linear, 1, 1, bias=False),
        batch=lambda: torch.randn(4, 1),
        step=with_gradients(shift_by_rank),
        steps=1,
    ).mistakes
    assert mistake.finding.cause == RanksDiffer((0, 1), frozenset({"dp"}))


@pytest.mark.parametrize(
    ("factor", "shift", "kind"), [(1.0, 0.37, "unexplained"), (3.0, 0.0, "scaled")]
)
def test_one_element_proves_a_known_number_as_a_factor_alone(
    factor: float, shift: float, kind: str
) -> None:
    def change(model: nn.Module, mesh: DeviceMesh) -> None:
        add(model.parameters(), mesh, "dp")
        for each in model.parameters():
            each.grad.mul_(factor / mesh.size()).add_(shift)

    (mistake,) = compare(
        build=functools.partial(nn.Linear, 1, 1, bias=False),
        batch=lambda: torch.randn(4, 1),
        step=with_gradients(change),
        steps=1,
    ).mistakes
    assert mistake.finding.cause.kind == kind


def layer_loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return out.square().mean()


def sum_over_ranks(model, micro_batches, mesh, optimizer):
    for each in micro_batches:
        (layer_loss(model, each) / len(micro_batches)).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


def sum_over_micro_batches(model, micro_batches, mesh, optimizer):
    for each in micro_batches:
        layer_loss(model, each).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def sum_over_rows(model, batch, mesh, optimizer):
    (layer_loss(model, batch) * len(batch)).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def twice(model, batch, mesh, optimizer):
    """Multiply by a number that is none of the training."""
    (layer_loss(model, batch) * 2).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


@pytest.mark.long
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
    (mistake,) = result.mistakes
    if mistake.finding.cause == Scaled(2.0, is_number_of_parts=True):
        (place,) = mistake.places
        assert "layer_loss(model, each).backward()" in code_of_line(place)


def play_layer(step: object, num_micro_batches: int) -> Parity:
    return compare(
        build=functools.partial(nn.Linear, 4, 3),
        batch=lambda: torch.randn(4, 4),
        loss=layer_loss,
        step=step,
        micro_batches=[num_micro_batches],
    )


def for_two_ranks_alone(model, micro_batches, mesh, optimizer):
    """Forget the number of ranks, in a step that needs two, and two micro-batches."""
    assert mesh["dp"].size() == len(micro_batches) == 2
    sum_over_ranks(model, micro_batches, mesh, optimizer)


@pytest.mark.slow
def test_a_factor_that_cannot_be_told_apart_is_all_numbers() -> None:
    result = play_layer(for_two_ranks_alone, 2)
    assert "by 2, the number of ranks of `dp` or of micro-batches" in str(result)


def divides_after_each(model, micro_batches, mesh, optimizer):
    """Divide by the number of ranks all that was added so far, after each micro-batch."""
    for each in micro_batches:
        (layer_loss(model, each) / len(micro_batches)).backward()
        for parameter in model.parameters():
            parameter.grad /= mesh["dp"].size()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


@pytest.mark.long
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
