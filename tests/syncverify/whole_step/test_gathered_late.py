"""ZeRO-3 by hand: the forward gathers parameters, and the optimizer updates shards of its own."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from typing_extensions import override

from syncverify import parity
from syncverify.errors import UsageError
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.training import Function
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import Optimizer, sgd


class Gathering(nn.Module):
    """A layer whose parameters are gathered from shards in the forward pass.

    Args:
        layer: The layer.
        mesh: A mesh of `dp`.
        gathers_once: Whether only the first forward gathers, which is wrong.
    """

    def __init__(
        self, layer: nn.Module, mesh: DeviceMesh, *, gathers_once: bool = False
    ) -> None:
        super().__init__()
        self.module = layer
        self.group = mesh.get_group("dp")
        self.shards = [self._own(each.detach()) for each in layer.parameters()]
        self._gathers_once, self._is_gathered = gathers_once, False

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (self._gathers_once and self._is_gathered):
            self._gather()
        self._is_gathered = True
        out: torch.Tensor = self.module(x)
        return out

    def _gather(self) -> None:
        for parameter, shard in zip(self.module.parameters(), self.shards, strict=True):
            parts = [torch.empty_like(shard) for _ in range(self.group.size())]
            dist.all_gather(parts, shard.detach(), group=self.group)
            parameter.data = torch.cat(parts)

    def reduce(self, divisor: int) -> None:
        """Give each shard its part of the reduced gradient."""
        for parameter, shard in zip(self.module.parameters(), self.shards, strict=True):
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad, group=self.group)
            shard.grad = self._own(parameter.grad).detach() / divisor
            parameter.grad = None

    def _own(self, value: torch.Tensor) -> torch.Tensor:
        return value.chunk(self.group.size())[self.group.rank()].clone()

    def free(self) -> None:
        """Give the memory of the gathered parameters back."""
        for parameter in self.module.parameters():
            parameter.data = torch.empty(0, dtype=parameter.dtype)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return (out - 1).square().mean()


def optimizer_of_shards(model: nn.Module) -> Optimizer:
    shards = getattr(model, "shards", None)
    return sgd([*model.parameters()] if shards is None else shards)


def step(
    model: Gathering,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    frees: bool = False,
    divides: bool = True,
) -> None:
    loss(model, batch).backward()
    model.reduce(mesh["dp"].size() if divides else 1)
    optimizer.step()
    optimizer.zero_grad()
    if frees:
        model.free()


def _play(made: Function, plain: Function | None, **more: bool) -> Parity:
    return parity(
        functools.partial(nn.Linear, 4, 4),
        functools.partial(gathering, **more),
        lambda: torch.randn(4, 4),
        plain,
        layouts=["dp=2"],
        step=made,
        steps=3,
        optimizer=optimizer_of_shards,
        device="cpu",
    )


def gathering(model: nn.Module, mesh: DeviceMesh, **more: bool) -> Gathering:
    return Gathering(model, mesh, **more)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [loss, None])
@pytest.mark.parametrize("frees", [False, True])
def test_parameters_that_the_next_forward_gathers_are_right(
    plain: Function | None, *, frees: bool
) -> None:
    result = _play(functools.partial(step, frees=frees), plain)
    assert result.is_right, str(result)
    assert result.plays[-1].late == ("bias", "weight")
    assert "not compared: bias, weight after the last step of dp=2" in str(result)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [loss, None])
def test_a_wrong_divisor_of_shards_is_found(plain: Function | None) -> None:
    assert not _play(functools.partial(step, divides=False), plain).is_right


@pytest.mark.slow
def test_parameters_that_are_gathered_once_are_wrong() -> None:
    result = _play(step, loss, gathers_once=True)
    assert Quantity.PARAMETER in result.mistakes[0].finding.follows
    assert not result.plays[0].late


def test_one_step_shows_no_parameter_that_is_gathered_late() -> None:
    with pytest.raises(UsageError, match="make two steps or more"):
        parity(
            functools.partial(nn.Linear, 4, 4),
            gathering,
            lambda: torch.randn(4, 4),
            loss,
            layouts=["dp=2"],
            step=step,
            steps=1,
            optimizer=optimizer_of_shards,
            device="cpu",
        )
