"""Parameters that some ranks, some steps or some micro-batches do not use."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from syncverify.synchronizer import BucketNotReadyError
from tests.conformance.training import (
    assert_averages,
    inputs_of,
    of,
    refused,
    train_step,
    two_layers,
    whole_numbers,
)
from tests.conformance.wrappers import ours


class Tasks(nn.Module):
    """A weight for each task; a forward names the tasks that it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(2, 2) for _ in range(4))

    def forward(self, x: torch.Tensor, tasks: list[int]) -> torch.Tensor:
        for task in tasks:
            x = x * 2 + self.weights[task]
        return x


tasks = of(Tasks)


def of_ranks(*by_rank: list[int]):
    """The losses of a step in which each rank has its own tasks."""

    def losses(model, rank) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 2, 2), by_rank[rank]).mean()

    return losses


def of_ignored_outputs(model, rank) -> Iterator[torch.Tensor]:
    for _ in range(4):
        model(inputs_of(rank, 2, 2), [0, 1])
    yield from of_ranks([0, 1], [0, 1])(model, rank)


def second_layer(*by_rank: bool):
    """Losses of a rank; a rank may leave out the second layer."""

    def losses(model, rank) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 20, 10), both=by_rank[rank]).sum()

    return losses


STEPS = {
    "tasks of one rank and of none": (tasks, [of_ranks([0], [1])] * 2),
    "one rank uses everything": (tasks, [of_ranks([0, 1, 2, 3], [1, 2, 3])] * 2),
    "ignored outputs": (tasks, [of_ignored_outputs, of_ranks([0, 1], [0, 1])]),
    "control flow of steps": (
        two_layers,
        [second_layer(both, both) for both in (False, True) * 3],
    ),
    "control flow of ranks": (
        two_layers,
        [second_layer(False, both) for both in (False, True) * 3],
    ),
    "other graphs on the ranks": (two_layers, [second_layer(True, False)] * 3),
}


@pytest.mark.parametrize("case", STEPS)
def test_ranks_and_steps_use_other_parameters(play, wrap, case) -> None:
    make, steps = STEPS[case]
    assert_averages(play, wrap, make, *steps, unused="keep_none")


def test_a_parameter_that_is_unused_in_the_second_step_is_refused(play) -> None:
    def program(rank: int) -> None:
        wrapped = ours(two_layers())
        train_step(wrapped, second_layer(True, True), rank)
        wrapped.zero_grad()
        with refused(BucketNotReadyError, "second.weight 0"):
            train_step(wrapped, second_layer(False, False), rank)

    play(2, program)


class Nested(nn.Module):
    """Layers below layers, most of them unused."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.ModuleDict(
            {
                "words": nn.Embedding(4, 3),
                "norm": nn.BatchNorm1d(2),
                "used": nn.Linear(2, 2, bias=False),
                "pair": nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in "ab"),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part["pair"][0](self.part["used"](self.part["norm"](x)))


@pytest.mark.parametrize("ignored", [(), ("part.words.weight",)])
def test_unused_parameters_of_nested_modules_are_refused_by_name(play, ignored) -> None:
    def program(rank: int) -> str:
        model = whole_numbers(Nested())
        wrapped = ours(model, ignored=ignored)
        model(inputs_of(rank, 4, 2)).sum().backward()
        with pytest.raises(BucketNotReadyError) as caught:
            wrapped.finish()
        return str(caught.value)

    for message in play(2, program):
        assert "part.pair.1.weight 0" in message
        assert ("part.words.weight 0" in message) == (not ignored)
        for used in ("norm", "used", "pair.0"):
            assert f"part.{used}" not in message
        assert f"hint: {BucketNotReadyError.hint}" in message


class Shared(nn.Module):
    """A parameter with two names, which is unused as is its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(10, 5, bias=False)
        self.idle.bias = self.bias = nn.Parameter(torch.zeros(5))
        self.used = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x).sum()


def test_an_unused_parameter_with_two_names(play, wrap) -> None:
    def losses(model, rank) -> Iterator[torch.Tensor]:
        loss = model(inputs_of(rank, 20, 10))
        loss /= 8
        yield loss

    assert_averages(play, wrap, of(Shared), *[losses] * 3, unused="keep_none")


class TwoOutputs(nn.Module):
    """Two outputs of a tuple or of a dict, and a parameter of none."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(10, 10, bias=False) for _ in "ab")
        self.c = nn.Linear(5, 5, bias=False)
        self.form = form

    def forward(self, x: torch.Tensor):
        both = self.a(x), self.b(x)
        return both if self.form == "tuple" else {"both": both, "sum": sum(both)}


@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_an_output_outside_of_the_loss(play, wrap, form) -> None:
    """In the second step, later micro-batches leave the gradient of `a` as it is."""

    def outputs(model, rank, seed):
        found = model(inputs_of(rank, 10, 10, seed=seed))
        return found if form == "tuple" else found["both"]

    def of_b(model, rank) -> Iterator[torch.Tensor]:
        for seed in range(6):
            yield outputs(model, rank, seed)[1].sum()

    def first_of_both(model, rank) -> Iterator[torch.Tensor]:
        for seed in range(6):
            a, b = outputs(model, rank, seed)
            yield (a @ b).sum() if seed < 2 else b.sum()

    steps = [of_b, first_of_both]
    options = {"unused": "keep_none", "micro_batches": 6}
    assert_averages(play, wrap, of(TwoOutputs, form), *steps, **options)


def test_micro_batches_use_other_layers_on_each_rank(play, wrap) -> None:
    """What was used without a reduction alone is averaged at the end of the step."""

    def losses(model, rank) -> Iterator[torch.Tensor]:
        for first in (0, 2):
            task = first + rank
            yield (model(inputs_of(rank, 2, 2, seed=first), [task]) - 1).square().mean()

    options = {"unused": "keep_none", "micro_batches": 2}
    assert_averages(play, wrap, tasks, losses, losses, **options)


class LosesItsGradient(torch.autograd.Function):
    """A function whose input has no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


def test_undefined_gradients(play, wrap) -> None:
    def losses(model, rank) -> Iterator[torch.Tensor]:
        out = model(inputs_of(rank, 1, 10)).sum()
        yield LosesItsGradient.apply(out)

    assert_averages(play, wrap, two_layers, losses, unused="keep_none")
