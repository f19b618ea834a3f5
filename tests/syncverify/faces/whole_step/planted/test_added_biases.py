"""A bias that each rank adds to its part of a sum."""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import AddedBias, Unexplained
from tests.syncverify.faces.whole_step.planted.steps import average, compare, update
from tests.syncverify.faces.whole_step.reports.by_hand import (
    own_part,
    sums,
    sums_gradient,
)

pytestmark = pytest.mark.slow


class Block(nn.Module):
    """A layer up whose outputs are split over ranks, and a layer down whose inputs are."""

    group: ProcessGroup | None = None
    wrong = ""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is None:
            return x + self.down(torch.tanh(self.up(x)))
        hidden = self.up(sums_gradient(x, self.group))
        hidden = torch.relu(hidden) if self.wrong == "relu" else torch.tanh(hidden)
        if self.wrong == "bias":
            return x + sums(self.down(hidden), self.group)
        return x + sums(hidden @ self.down.weight.T, self.group) + self.down.bias


class TwoSums(nn.Module):
    """Two layers whose biases have different names."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed_forward = Block(), Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.feed_forward(self.attention(x))


def build(layers: int = 1) -> nn.Module:
    return nn.Sequential(*(Block() for _ in range(layers))).cuda()


def parallelize(model: nn.Module, mesh: DeviceMesh, wrong: str) -> None:
    group = mesh.get_group("tp")
    for block in model.modules():
        if isinstance(block, Block):
            block.group, block.wrong = group, wrong
            block.up.weight.data = own_part(block.up.weight.data, group)
            block.up.bias.data = own_part(block.up.bias.data, group)
            block.down.weight.data = own_part(block.down.weight.data, group, dim=1)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return (out - 1).square().mean()


def step(model, batch, mesh, optimizer):
    loss(model, batch).backward()
    average(model.parameters(), mesh, "dp")
    update(optimizer)


def play(wrong: str, model: Callable[[], nn.Module] = build) -> Parity:
    return compare(
        build=model,
        parallelize=functools.partial(parallelize, wrong=wrong),
        batch=lambda: torch.randn(4, 4, device="cuda"),
        loss=loss,
        step=step,
        split=["dp"],
        own={"*.up.*": {"tp": 0}, "*.down.weight": {"tp": 1}},
        layouts=["dp=2,tp=2"],
        device="cuda",
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "names"),
    [
        (build, ["0.down.bias"]),
        (functools.partial(build, 2), ["0.down.bias", "1.down.bias"]),
        (lambda: TwoSums().cuda(), ["attention.down.bias", "feed_forward.down.bias"]),
    ],
)
def test_biases_that_each_rank_adds_before_the_sum_are_named(
    model: Callable[[], nn.Module], names: list[str]
) -> None:
    result = play("bias", model)
    (mistake,) = result.mistakes
    assert mistake.finding.cause == AddedBias(tuple(names), frozenset({"tp"}))
    assert "once: after the sum over `tp`, or on one rank" in str(result)


@pytest.mark.long
def test_a_bias_that_is_added_after_the_sum_is_silent() -> None:
    assert play("").is_right


@pytest.mark.long
def test_another_function_on_ranks_is_no_matter_of_biases() -> None:
    (mistake,) = play("relu").mistakes
    assert mistake.finding.cause == Unexplained()
