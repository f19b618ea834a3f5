"""Dtypes of parameters, of gradients and of sums."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

from syncverify.synchronizer import GradientMismatchError
from tests.conformance.training import (
    assert_averages,
    assert_equal,
    gradients,
    inputs_of,
    layers,
    mean_over_ranks,
    of,
    refused,
    train_step,
    whole_numbers,
)
from tests.conformance.wrappers import ours


def test_a_model_that_is_cast_after_bind_is_refused(play) -> None:
    """FSDP2 allows it; here the buckets have their dtype until `unbind()`."""

    def losses(model: Any, rank: int) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 3, 4)).sum()

    def program(rank: int) -> None:
        model = layers(4, 5).float()
        wrapped = ours(model)
        model.double()
        with refused(GradientMismatchError, "expected: torch.float32"):
            train_step(wrapped, losses, rank)
        wrapped.synchronizer.unbind()
        model.zero_grad()
        expected = mean_over_ranks(model, losses)
        again = ours(model)
        train_step(again, losses, rank)
        assert_equal(gradients(model), expected)

    play(2, program)


class OfTwoDtypes(nn.Module):
    """A layer in float64, two in float32, and the last of them may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 10, bias=False)
        self.second = nn.Linear(10, 4, bias=False)
        self.third = nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor, *, all_layers: bool = True) -> torch.Tensor:
        x = self.first(x).relu().float()
        x = self.second(x).relu().float()
        return self.third(x) if all_layers else x


def of_two_dtypes() -> nn.Module:
    model = whole_numbers(OfTwoDtypes())
    model.second.float()
    model.third.float()
    return model


def of_some_layers(*, all_layers: bool):
    def losses(model, rank) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 4, 2), all_layers=all_layers).square().mean()

    return losses


@pytest.mark.parametrize("unused", ["error", "keep_none"])
def test_gradients_of_two_dtypes(play, wrap, unused) -> None:
    steps = [of_some_layers(all_layers=unused == "error")] * 2
    assert_averages(play, wrap, of_two_dtypes, *steps, unused=unused)


def test_an_optimizer_where_a_layer_is_unused_at_first(play, wrap) -> None:
    """Adam keeps no state of a gradient that is None, and starts with the second step."""

    def program(rank: int) -> None:
        model = of_two_dtypes()
        wrapped = wrap(model, unused="keep_none")
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(3):
            losses = of_some_layers(all_layers=step > 0)
            expected = mean_over_ranks(model, losses)
            train_step(wrapped, losses, rank)
            assert_equal(gradients(model), expected)
            optimizer.step()
            wrapped.zero_grad()
        counts = [optimizer.state[p]["step"].item() for p in model.parameters()]
        assert counts == [3, 3, 2]

    play(2, program)


def word_losses(model: Any, rank: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    words = torch.randint(0, 10, (2, 3), generator=generator)
    yield model(words).square().sum()


def halved(buffer: torch.Tensor, group: dist.ProcessGroup) -> Future[torch.Tensor]:
    work = dist.all_reduce(buffer, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0] / 2)


@pytest.mark.parametrize("hook", [None, halved])
def test_sparse_gradients(play, wrap, hook) -> None:
    """DDP keeps them sparse; here they are dense, and have the same values."""
    of_words = of(nn.EmbeddingBag, 10, 10, sparse=True, mode="sum")
    assert_averages(play, wrap, of_words, word_losses, hook=hook)
