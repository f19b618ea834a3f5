"""Numbers of tokens that differ between ranks, or are zero, and divisors of terms of the loss."""

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.errors import UsageError
from syncverify.faces.whole_step.data import EmptyPart, UnequalTokens
from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import (
    NotANumber,
    Scaled,
    TermsWeighted,
    Weighted,
)
from tests.syncverify.faces.whole_step.planted.steps import (
    add,
    average,
    compare,
    update,
)

Batch = dict[str, torch.Tensor]


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))


def batch() -> Batch:
    return {"x": torch.randn(8, 4, 3), "mask": torch.ones(8, 4)}


def unequal_batch() -> Batch:
    """Make 4 rows; ranks have unequal numbers of tokens that count."""
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]])
    return {"x": torch.randn(4, 3, 3), "mask": mask.double()}


def summed(model: nn.Module, batch: Batch) -> torch.Tensor:
    return (model(batch["x"]).squeeze(-1).square() * batch["mask"]).sum()


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return summed(model, batch) / batch["mask"].sum()


def right(model, batch, micro_batches, mesh, optimizer):
    count = batch["mask"].sum()
    dist.all_reduce(count, group=mesh.get_group("dp"))
    for each in micro_batches:
        (summed(model, each) / count).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


def mean_of_ranks(model, batch, micro_batches, mesh, optimizer):
    count = batch["mask"].sum().clamp(min=1)
    for each in micro_batches:
        (summed(model, each) / count).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def divided_by_own_count(model, batch, micro_batches, mesh, optimizer):
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
def test_a_mean_of_means_is_named_with_the_fewest_rows_that_show_it() -> None:
    result = compare(build=build, batch=unequal_batch, loss=loss, step=mean_of_ranks)
    (mistake,) = result.mistakes
    cause = mistake.finding.cause
    assert isinstance(cause, Weighted)
    assert cause.are_equal
    # The smallest batch that shows it has two rows, with 3 tokens and with 2.
    assert mistake.num_rows == 2
    assert cause.weights == pytest.approx((5 / 6, 5 / 4))
    assert len(mistake.finding.differences) == 4, "the bias of one element too"
    assert "a mean of means" in str(result)


def divided_twice(model, batch, mesh, optimizer):
    count = batch["mask"].sum()
    dist.all_reduce(count, group=mesh.get_group("dp"))
    (summed(model, batch) / count).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def loss_of_whole_batch(model, batch, mesh=None):
    assert len(batch["x"]) == 8, "needs the whole batch"
    return loss(model, batch)


@pytest.mark.long
def test_a_loss_that_needs_the_whole_batch_names_a_factor_all_the_same() -> None:
    (mistake,) = compare(
        build=build, batch=batch, loss=loss_of_whole_batch, step=divided_twice
    ).mistakes
    assert mistake.finding.cause == Scaled(0.5, frozenset({frozenset({"dp"})}))


@pytest.mark.long
def test_a_right_step_is_silent_with_any_number_of_tokens() -> None:
    result = _play(right, numbers=(1, 2))
    assert result.is_right, str(result)
    words = [each.variation and each.variation.word for each in result.plays]
    assert words == [None, "unequal-tokens", "padding"] * 2


@pytest.mark.long
def test_a_mean_of_means_shows_with_unequal_numbers_of_tokens_alone() -> None:
    result = _play(mean_of_ranks, numbers=(1,))
    assert [each.is_right for each in result.plays] == [True, False, False]
    (mistake,) = result.mistakes
    assert mistake.variation == UnequalTokens("mask")
    cause = mistake.finding.cause
    assert isinstance(cause, Weighted)
    assert cause.are_equal
    assert "data:       ranks have unequal numbers of tokens" in str(result)


@pytest.mark.slow
def test_a_padding_micro_batch_shows_a_division_by_zero() -> None:
    result = _play(divided_by_own_count)
    assert [each.is_right for each in result.plays] == [True, True, False]
    (mistake,) = result.mistakes
    assert mistake.variation == EmptyPart("mask", 4)
    assert mistake.finding.cause == NotANumber((0, 1))
    assert "the last micro-batch is padding ('mask' is 0)" in str(result)


@pytest.mark.parametrize(
    ("mask", "changed"),
    [
        (torch.ones(4), [1.0, 0.0, 1.0, 1.0]),
        (torch.ones(4, 1), [[1.0], [0.0], [1.0], [1.0]]),
        (torch.tensor([[0.0, 2.0], [3.0, 0.0]]), [[0.0, 0.0], [3.0, 0.0]]),
    ],
)
def test_halves_of_the_rows_get_unequal_numbers_of_tokens(
    mask: torch.Tensor, changed: list[Any]
) -> None:
    assert UnequalTokens("mask").changed({"mask": mask})["mask"].tolist() == changed


def test_a_key_that_the_batch_lacks_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"expected batch.. to return a dict.*'weight'"
    ):
        _play(right, key="weight")


class Routed(nn.Module):
    """A router, and two layers that it chooses from."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(3, 2)
        self.layers = nn.Parameter(torch.randn(2, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self.router(x).softmax(-1)
        return (chosen * torch.tanh(x @ self.layers.T)).sum(-1), chosen


def routed_sums(model: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    out, chosen = model(batch)
    return {"main": (out - 1).square().sum(), "balance": chosen.square().sum()}


def routed_loss(model: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: each / len(batch) for name, each in routed_sums(model, batch).items()}


def routed_step(model, micro_batches, mesh, optimizer, *, divides_all=True):
    """Divide the sums by all rows, and the auxiliary one by those of a micro-batch."""
    size = mesh["dp"].size()
    rows = sum(map(len, micro_batches)) * size
    for each in micro_batches:
        terms = routed_sums(model, each)
        aux_rows = rows if divides_all else len(each) * size
        (terms["main"] / rows + terms["balance"] / aux_rows).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


play_routed = functools.partial(
    compare,
    build=Routed,
    batch=lambda: torch.randn(4, 3),
    loss=routed_loss,
    micro_batches=[2],
)


@pytest.mark.slow
def test_an_auxiliary_loss_with_another_count_is_named() -> None:
    result = play_routed(step=functools.partial(routed_step, divides_all=False))
    (mistake,) = result.mistakes
    cause = mistake.finding.cause
    assert isinstance(cause, TermsWeighted)
    assert cause.factors == (("main", 1.0), ("balance", 2.0))
    assert cause.is_number_of_parts
    names = {each.name for each in mistake.finding.differences}
    assert names == {"router.weight", "router.bias"}
    assert (
        "the term balance counts 2 times what it should: "
        "the number of ranks of `dp` or of micro-batches"
    ) in str(result)
    assert "divide each term of the loss by its own count" in str(result)


@pytest.mark.slow
def test_an_auxiliary_loss_with_the_right_count_is_silent() -> None:
    result = play_routed(step=routed_step)
    assert result.is_right, str(result)
