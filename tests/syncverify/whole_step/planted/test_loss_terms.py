"""An auxiliary loss that is divided by another count than the main one."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from typing_extensions import override

from syncverify.whole_step.causes import TermsWeighted
from tests.syncverify.whole_step.planted.steps import Optimizer, add, compare, update


class Routed(nn.Module):
    """A router, and two layers that it chooses from."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(3, 2)
        self.layers = nn.Parameter(torch.randn(2, 3))

    @override
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = self.router(x).softmax(-1)
        return (chosen * torch.tanh(x @ self.layers.T)).sum(-1), chosen


def batch() -> torch.Tensor:
    return torch.randn(4, 3)


def sums(model: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    out, chosen = model(batch)
    return {"main": (out - 1).square().sum(), "balance": chosen.square().sum()}


def loss(model: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: each / len(batch) for name, each in sums(model, batch).items()}


def step(
    model: nn.Module,
    micro_batches: list[torch.Tensor],
    mesh: DeviceMesh,
    optimizer: Optimizer,
    *,
    divides_all: bool = True,
) -> None:
    """Divide the sums by all rows, and the auxiliary one by those of a micro-batch."""
    size = mesh["dp"].size()
    rows = sum(map(len, micro_batches)) * size
    for each in micro_batches:
        terms = sums(model, each)
        aux_rows = rows if divides_all else len(each) * size
        (terms["main"] / rows + terms["balance"] / aux_rows).backward()
    add(model.parameters(), mesh, "dp")
    update(optimizer)


play = functools.partial(
    compare, build=Routed, batch=batch, loss=loss, micro_batches=[2]
)


@pytest.mark.slow
def test_an_auxiliary_loss_with_another_count_is_named() -> None:
    result = play(step=functools.partial(step, divides_all=False))
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
    result = play(step=step)
    assert result.is_right, str(result)
