"""Gradients that are complete in shape and partial in value."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from typing_extensions import override

from syncverify.whole_step.causes import LacksSum
from syncverify.whole_step.parity import Parity
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step.planted.steps import (
    Optimizer,
    add,
    average,
    compare,
    update,
)
from tests.syncverify.whole_step.reports.by_hand import (
    joins,
    own_part,
    splits,
    sums,
    sums_gradient,
)


class SequenceParallel(nn.Module):
    """Norms over a rank's part of the sequence, and layers over all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.group: ProcessGroup | None = None
        self.norms = nn.ModuleList([nn.LayerNorm(4) for _ in range(2)])
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        group = self.group
        for norm, layer in zip(self.norms, self.layers, strict=True):
            if group is not None:
                x = splits(x, group, dim=1)
            x = norm(x) * 1.5
            if group is not None:
                x = joins(x, group, dim=1)
            x = torch.tanh(layer(x)) + x
        return x


class Gated(nn.Module):
    """A layer, and experts that are split over ranks behind a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.group: ProcessGroup | None = None
        self.gate_is_summed = True
        self.layer = nn.Linear(4, 4)
        self.gate = nn.Linear(4, 1)
        self.up = nn.Parameter(torch.randn(4, 8))
        self.down = nn.Parameter(torch.randn(8, 4))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.layer(x))
        gate, own = torch.sigmoid(self.gate(x)), x
        if self.group is not None:
            own = sums_gradient(x, self.group)
            gate = sums_gradient(gate, self.group) if self.gate_is_summed else gate
        out = gate * (torch.tanh(own @ self.up) @ self.down)
        return out if self.group is None else sums(out, self.group)


def batch() -> torch.Tensor:
    return torch.randn(4, 6, 4)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return (out.square() * out).mean()


def step(
    model: SequenceParallel,
    batch: torch.Tensor,
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    sums_norms: bool = True,
) -> None:
    model.group = mesh.get_group("tp")
    loss(model, batch).backward()
    if sums_norms:
        add(model.norms.parameters(), mesh, "tp")
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def gated_step(
    model: Gated, batch: torch.Tensor, mesh: DeviceMesh, optimizer: Optimizer
) -> None:
    loss(model, batch).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def split_experts(model: Gated, mesh: DeviceMesh) -> None:
    group = model.group = mesh.get_group("tp")
    model.up = nn.Parameter(own_part(model.up, group, dim=1))
    model.down = nn.Parameter(own_part(model.down, group))


def split_with_a_partial_gate(model: Gated, mesh: DeviceMesh) -> None:
    split_experts(model, mesh)
    model.gate_is_summed = False


OWN = {"up": {"tp": 1}, "down": {"tp": 0}}
GATED = {"build": Gated, "parallelize": split_experts, "step": gated_step, "own": OWN}


def play(**training: Any) -> Parity:
    return compare(batch=batch, loss=loss, layouts=["dp=2,tp=2"], **training)


@pytest.mark.slow
def test_norm_weights_that_are_not_summed_over_tp_are_named() -> None:
    wrong = functools.partial(step, sums_norms=False)
    result = play(build=SequenceParallel, step=wrong)
    (mistake,) = result.mistakes
    assert mistake.finding.cause == LacksSum(frozenset({"tp"}))
    assert mistake.finding.quantity is Quantity.GRADIENT
    names = {each.name for each in mistake.finding.differences}
    assert names == {f"norms.{i}.{word}" for i in (0, 1) for word in ("weight", "bias")}
    words = "gradient of norms.{0-1}.weight, norms.{0-1}.bias: lacks the sum over `tp`"
    assert words in str(result)
    assert str(mistake.layout) == "dp=1,tp=2"


@pytest.mark.slow
def test_norm_weights_that_are_summed_are_silent() -> None:
    result = play(build=SequenceParallel, step=step)
    assert result.is_right, str(result)


@pytest.mark.slow
def test_a_router_gate_that_is_partial_and_labelled_whole_is_named() -> None:
    result = play(**GATED | {"parallelize": split_with_a_partial_gate})
    (mistake,) = result.mistakes
    assert mistake.finding.cause == LacksSum(frozenset({"tp"}))
    names = {each.name for each in mistake.finding.differences}
    assert names == {"gate.weight", "gate.bias"}
    spread = {each.name for each in mistake.finding.spread}
    assert spread == {"layer.weight", "layer.bias"}
    assert "spreads:  to layer.weight, layer.bias" in str(result)


@pytest.mark.slow
def test_a_router_gate_that_is_summed_is_silent() -> None:
    result = play(**GATED)
    assert result.is_right, str(result)
