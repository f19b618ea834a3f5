"""Training steps on several ranks, and the same by plain autograd alone."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from syncverify.synchronizer import SynchronizerError

NUM_RANKS = 2
LEARNING_RATE = 0.25
Gradients = dict[str, torch.Tensor | None]
# The losses of one step on one rank; each is followed by its backward.
Losses = Callable[[Any, int], Iterable[torch.Tensor]]


class TwoLayers(nn.Module):
    """Two layers, of which a forward may leave out the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(10, 10, bias=False)
        self.second = nn.Linear(10, 10, bias=False)

    def forward(self, x: torch.Tensor, *, both: bool = True) -> torch.Tensor:
        x = self.first(x).relu()
        return self.second(x) if both else x


def layers(*sizes: int, bias: bool = True) -> nn.Module:
    """Return layers of these widths, the first of which is the input's."""
    pairs = pairwise(sizes)
    return whole_numbers(
        nn.Sequential(*(nn.Linear(one, other, bias=bias) for one, other in pairs))
    )


def whole_numbers(model: nn.Module, seed: int = 0) -> nn.Module:
    """Fill the parameters with small integers in float64, the same on every rank."""
    # Ranks are threads, which share torch's own generator.
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.double().parameters():
        drawn = torch.randint(-2, 3, parameter.shape, generator=generator)
        parameter.data.copy_(drawn)
    return model


def of(kind: Callable[..., nn.Module], *args: Any, **options: Any) -> Any:
    """Return a function that makes a model of a kind, of whole numbers."""
    return lambda: whole_numbers(kind(*args, **options))


two_layers = of(TwoLayers)


def inputs_of(
    rank: int, *shape: int, seed: int = 0, requires_grad: bool = False
) -> torch.Tensor:
    """Draw small integers in float64, other ones for each rank."""
    generator = torch.Generator().manual_seed(100 * seed + rank + 1)
    drawn = torch.randint(-3, 4, shape, generator=generator)
    return drawn.double().requires_grad_(requires_grad)


def gradients(model: nn.Module) -> Gradients:
    """Copy the gradients of a model."""
    return {
        name: None if parameter.grad is None else parameter.grad.detach().clone()
        for name, parameter in model.named_parameters()
    }


def mean_over_ranks(model: nn.Module, losses: Losses) -> Gradients:
    """Return the mean of the gradients of both ranks, by plain autograd alone."""
    return scaled(sum_over(model, losses, range(NUM_RANKS)), 1 / NUM_RANKS)


def sum_over(model: nn.Module, losses: Losses, ranks: Iterable[int]) -> Gradients:
    """Add up the gradients of some ranks, by plain autograd alone.

    A gradient that some ranks lack is zero there; one that all lack is None.
    """
    sums = dict.fromkeys(gradients(model))
    for rank in ranks:
        alone = deepcopy(model)
        for loss in losses(alone, rank):
            loss.backward()
        for name, gradient in gradients(alone).items():
            if gradient is not None:
                sums[name] = gradient.to_dense() + (
                    0 if sums[name] is None else sums[name]
                )
    return sums


def scaled(sums: Gradients, factor: float) -> Gradients:
    """Multiply gradients by a power of two."""
    return {name: None if one is None else one * factor for name, one in sums.items()}


def assert_equal(found: Gradients, expected: Gradients) -> None:
    """Compare bit by bit; None equals None alone."""
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        other = expected[name]
        if gradient is None or other is None:
            assert gradient is other, f"{name}: {gradient} is not {other}"
        else:
            assert torch.equal(gradient.to_dense(), other), name


def descend(model: nn.Module) -> None:
    """Move the parameters down their gradients."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= LEARNING_RATE * parameter.grad


@contextmanager
def refused(error: type[SynchronizerError], *words: str) -> Iterator[None]:
    """Expect an error with a remedy; its message has all the words."""
    with pytest.raises(error) as caught:
        yield
    *_, last = lines = str(caught.value).splitlines()
    assert type(caught.value) is error
    assert last == f"  hint: {error.hint}"
    assert error.hint
    assert [word for word in words if not any(word in line for line in lines)] == []


def train_step(wrapped: Any, losses: Losses, rank: int) -> None:
    """Run the backwards of a step, until its gradients are complete."""
    for loss in losses(wrapped, rank):
        loss.backward()
    wrapped.finish()


def assert_averages(
    play: Any, wrap: Any, make: Callable[[], nn.Module], *steps: Losses, **options: Any
) -> None:
    """Train on two ranks: the gradients of every step are the mean over the ranks."""

    def program(rank: int) -> None:
        model, alone = make(), make()
        wrapped = wrap(model, **options)
        for losses in steps:
            alone.load_state_dict(model.state_dict())
            expected = mean_over_ranks(alone, losses)
            train_step(wrapped, losses, rank)
            assert_equal(gradients(model), expected)
            descend(model)
            wrapped.zero_grad()

    play(NUM_RANKS, program)
