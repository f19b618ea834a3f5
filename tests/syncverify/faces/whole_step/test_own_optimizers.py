"""Optimizers with tensors of their own, closures, and optimizers of no class of torch."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.errors import UsageError
from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import (
    Optimizer,
    average,
    averaged_backward,
    compare,
    mean_square,
    sgd,
    update,
)

pytestmark = pytest.mark.slow

Make = Callable[..., Any]


class MasterAdam(torch.optim.AdamW):
    """AdamW over copies in float32 or more, which clears the gradients of the model."""

    def __init__(self, parameters: list[nn.Parameter], factor: float = 1.0) -> None:
        self.parameters, self.factor = parameters, factor
        dtype = torch.promote_types(parameters[0].dtype, torch.float32)
        self.copies = [
            nn.Parameter(e.detach().to(dtype, copy=True)) for e in parameters
        ]
        super().__init__(self.copies, lr=0.05, foreach=False)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure
        for copy, each in zip(self.copies, self.parameters, strict=True):
            copy.grad = self.factor * each.grad.to(copy.dtype)
            each.grad = None
        super().step()
        for copy, each in zip(self.copies, self.parameters, strict=True):
            each.copy_(copy)


class ReducingSGD(torch.optim.SGD):
    """SGD that reduces gradients in its step, also with a handle that it waits for there."""

    def step(self, closure: Any = None) -> Any:
        listed = [e.grad for e in self.param_groups[0]["params"] if e.grad is not None]
        works = [dist.all_reduce(each, async_op=True) for each in listed]
        for each, work in zip(listed, works, strict=True):
            work.wait()
            each /= dist.get_world_size()
        return super().step(closure)


class Wrapper:
    """An optimizer of no class of torch, around one of torch."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.inner = sgd(parameters)

    def step(self) -> None:
        self.inner.step()

    def zero_grad(self) -> None:
        self.inner.zero_grad()


class ByHand:
    """An optimizer of no class of torch that computes the update itself."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters

    @torch.no_grad()
    def step(self) -> None:
        for each in self.parameters:
            each -= 0.1 * each.grad

    def zero_grad(self) -> None:
        for each in self.parameters:
            each.grad = None


def two(parameters: list[nn.Parameter]) -> list[Optimizer]:
    return [MasterAdam(parameters[:2]), sgd(parameters[2:])]


def step(model, batch, mesh, optimizer, *, reduces=True):
    mean_square(model, batch).backward()
    if reduces:
        average(model.parameters(), mesh, "dp")
    optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
    for each in optimizers:
        each.step()
        each.zero_grad()


def step_with_closure(model, batch, mesh, optimizer):
    def closure() -> float:
        optimizer.zero_grad()
        value = mean_square(model, batch)
        value.backward()
        average(model.parameters(), mesh, "dp")
        return float(value.detach())

    optimizer.step(closure)


def step_with_main_gradients(model, batch, mesh, optimizer):
    averaged_backward(model, batch, mesh)
    for each, copy in zip(model.parameters(), optimizer.copies, strict=True):
        each.main_grad = each.grad.clone()  # type: ignore[attr-defined]  # as a wrapper
        each.grad, copy.grad = None, each.main_grad  # type: ignore[attr-defined]
    torch.optim.AdamW.step(optimizer)
    with torch.no_grad():
        for each, copy in zip(model.parameters(), optimizer.copies, strict=True):
            each.copy_(copy)


def play(optimizer: Make, own: Make = step, **more: Any) -> Parity:
    return compare(step=own, optimizer=optimizer, **more)


unreduced = functools.partial(step, reduces=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("optimizer", "own", "more"),
    [
        (MasterAdam, step, {}),
        (MasterAdam, step, {"dtype": torch.bfloat16}),
        (ReducingSGD, unreduced, {}),
        (Wrapper, step, {}),
        (ByHand, step, {}),
        (two, step, {}),
        (sgd, step_with_closure, {}),
        (MasterAdam, step_with_main_gradients, {}),
    ],
)
def test_a_right_step_of_another_optimizer_is_right(
    optimizer: Make, own: Make, more: dict[str, Any]
) -> None:
    result = play(optimizer, own, **more)
    assert result.is_right, str(result)
    assert not result.remarks
    assert "depends on these" not in str(result)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", [ByHand, two])
def test_a_step_of_another_optimizer_without_a_sum_is_wrong(optimizer: Make) -> None:
    result = play(optimizer, unreduced)
    quantities = [each.finding.quantity for each in result.mistakes]
    assert Quantity.GRADIENT in quantities, str(result)


@pytest.mark.long
def test_a_factor_that_adam_hides_is_seen_in_the_gradient_of_a_copy() -> None:
    def scaled(parameters: list[nn.Parameter]) -> Optimizer:
        return MasterAdam(parameters, 1.0 * dist.get_world_size())

    result = play(scaled)
    assert result.mistakes[0].finding.quantity is Quantity.STEPPED, str(result)


def test_an_optimizer_that_leaves_the_model_as_it_is_is_refused() -> None:
    def alone(parameters: list[nn.Parameter]) -> Optimizer:
        return sgd([nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(2))])

    with pytest.raises(UsageError, match="leaves the parameters of the model on one"):
        play(alone, lambda model, batch, mesh, optimizer: update(optimizer))
