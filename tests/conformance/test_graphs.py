"""Outputs, hooks and graphs of a model that a wrapper around its forward may disturb."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from tests.conformance.training import (
    assert_averages,
    assert_equal,
    gradients,
    inputs_of,
    layers,
    mean_over_ranks,
    of,
    train_step,
)
from tests.conformance.wrappers import ours


class Pair(NamedTuple):
    """An input with two tensors."""

    a: torch.Tensor
    b: torch.Tensor


@dataclass
class Outputs:
    """The outputs of a model, of which the first may be missing."""

    first: torch.Tensor | None
    others: dict[str, torch.Tensor]


FORMS: dict[str, Callable[..., Any]] = {
    "tuple": lambda one, other: (one, (other,)),
    "list": lambda one, other: [one, [other]],
    "dict": lambda one, other: {"one": one, "others": {"a": other}},
    "dataclass": lambda one, other: Outputs(one, {"a": other}),
    "part of a dataclass": lambda _, other: Outputs(None, {"a": other}),
}


class OfForm(nn.Module):
    """A layer that runs twice on a named tuple, and another one; their outputs have a form."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (nn.Linear(10, 1) for _ in range(2))

    def forward(self, pair: Pair, form: str) -> Any:
        assert type(pair) is Pair
        both = self.one(pair.a * pair.b) + self.one(pair.a)
        return FORMS[form](both, self.other(pair.b))


def total(outputs: Any) -> torch.Tensor:
    """Add up all tensors of a nested output."""
    if isinstance(outputs, Outputs):
        outputs = [each for each in vars(outputs).values() if each is not None]
    if isinstance(outputs, torch.Tensor):
        return outputs.sum()
    parts = outputs.values() if isinstance(outputs, dict) else outputs
    return torch.stack([total(part) for part in parts]).sum()


@pytest.mark.parametrize("form", FORMS)
def test_inputs_and_outputs_of_any_form(play, wrap, form) -> None:
    def losses(model, rank) -> Iterator[torch.Tensor]:
        a, b = (inputs_of(rank, 5, 10, seed=seed) for seed in (1, 2))
        yield total(model(Pair(a, b), form))

    options = {"static_graph": form == "tuple", "unused": "keep_none"}
    assert_averages(play, wrap, of(OfForm), *[losses] * 3, **options)


class Detached(nn.Module):
    """Returns its result twice, once without a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers(10, 10, 10, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layers(x)
        return y.detach(), y.clone()


@pytest.mark.parametrize("unused", ["error", "keep_none"])
@pytest.mark.parametrize("static_graph", [False, True])
def test_an_output_without_a_graph(play, wrap, unused, static_graph) -> None:
    def losses(model, rank) -> Iterator[torch.Tensor]:
        one, other = model(inputs_of(rank, 1, 10))
        assert not one.requires_grad
        yield (one + other).sum()

    steps = [losses] * 3
    options = {"unused": unused, "static_graph": static_graph}
    assert_averages(play, wrap, Detached, *steps, **options)


class MakesTensors(nn.Module):
    """Makes the inputs that are missing, and returns them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers(10, 10, 10, bias=False)

    def forward(self, x, one=None, nested=None):
        made = torch.ones(1, 10, dtype=torch.float64)
        one = made if one is None else one
        return self.layers(x), one, {"made": made if nested is None else nested}


@pytest.mark.parametrize("static_graph", [False, True])
def test_tensors_that_forward_makes(play, wrap, static_graph) -> None:
    def program(rank: int) -> None:
        model = MakesTensors()
        wrapped = wrap(model, static_graph=static_graph)
        carried: list[Any] = [None, None]
        for _ in range(2):
            out, carried[0], nested = wrapped(inputs_of(rank, 1, 10), *carried)
            carried[1] = nested["made"]
            assert [each.grad_fn for each in carried] == [None, None]
            out.mean().backward()
            wrapped.finish()
            wrapped.zero_grad()

    play(2, program)


def test_hooks_of_modules(play, wrap) -> None:
    """They run as without a wrapper, and may change the gradients."""

    def make() -> nn.Module:
        model = layers(2, 2)
        layer = model[0]
        layer.register_forward_pre_hook(lambda _, inputs: inputs[0].relu())
        layer.register_forward_hook(lambda _, inputs, output: output * 2)
        layer.register_full_backward_pre_hook(lambda _, output: (output[0] * 3,))
        return model

    def losses(model, rank) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 5, 2, requires_grad=True)).sum()

    assert_averages(play, wrap, make, losses, losses)


class Fails(torch.autograd.Function):
    """A function whose backward fails."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ZeroDivisionError


def fail(model: Any, rank: int) -> None:
    """Run a backward that fails after the gradients of the last layer."""
    inputs = inputs_of(rank, 3, 2, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        model(Fails.apply(inputs)).sum().backward()


def test_another_synchronizer_after_a_failed_backward(play) -> None:
    def losses(model, rank) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 3, 2)).sum()

    def program(rank: int) -> None:
        model = layers(2, 2, 2)
        first = ours(model)
        fail(model, rank)
        first.synchronizer.unbind()
        second = ours(model)
        expected = mean_over_ranks(model, losses)
        train_step(second, losses, rank)
        assert_equal(gradients(model), expected)

    play(2, program)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_gradients_that_have_a_graph(play, wrap) -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(1.0))

        def forward(self) -> torch.Tensor:
            return self.weight.square()

    def program(_: int) -> None:
        model = Square()
        wrapped = wrap(model)
        for _ in range(6):
            wrapped().backward(create_graph=True)
            wrapped.finish()
            assert model.weight.requires_grad
            assert model.weight.grad.item() == 2
            wrapped.zero_grad()

    play(2, program)


class Stages(nn.Module):
    """Layers that may run without the first ones, or twice, or by another method."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = (nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x) + self.inner(x))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


stages = of(Stages)


def test_a_layer_twice_in_a_forward(play, wrap) -> None:
    def losses(model, rank) -> Iterator[torch.Tensor]:
        yield model(inputs_of(rank, 32, 4)).sum()

    assert_averages(play, wrap, stages, *[losses] * 3)


def test_a_part_of_the_model_alone(play) -> None:
    """The second step calls one layer, the third one a method that is no `forward`."""

    def program(rank: int) -> None:
        model = stages()
        wrapped = ours(model, unused="keep_none")
        for run in (model, model.inner, model.features):
            expected = mean_over_ranks(model, losses_of(model, run))
            run(inputs_of(rank, 3, 4)).sum().backward()
            wrapped.finish()
            assert_equal(gradients(model), expected)
            wrapped.zero_grad()

    play(2, program)


def losses_of(model: nn.Module, run: Any):
    """Return the losses of a part of a model, for a copy of the model."""

    def losses(copy, rank) -> Iterator[torch.Tensor]:
        part = {model: copy, model.inner: copy.inner}.get(run, copy.features)
        yield part(inputs_of(rank, 3, 4)).sum()

    return losses
