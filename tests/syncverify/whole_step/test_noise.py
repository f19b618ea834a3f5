"""Rounding explains the differences of right trainings, and hides no small mistake."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from syncverify import parity
from syncverify.whole_step.noise import RoundingNoise
from syncverify.whole_step.values import Quantity
from tests.syncverify.whole_step import ill_conditioned


def test_noise_of_a_sum_is_as_large_as_its_terms() -> None:
    """Terms cancel to zero, and the order of a sum still changes it."""
    terms = torch.tensor([1.0, -1.0, 3.0, -3.0], dtype=torch.float64)
    unit = torch.finfo(torch.float64).eps / 2
    with RoundingNoise(0, 1.0):
        total = float(terms.sum())
    assert unit < abs(total) < 8 * 32 * unit


def test_a_pair_of_noises_is_opposite() -> None:
    terms = torch.tensor([1.0, -1.0, 3.0, -3.0], dtype=torch.float64)
    totals = list[float]()
    for sign in (1.0, -1.0):
        with RoundingNoise(0, sign):
            totals.append(float(terms.sum()))
    assert totals[0] * totals[1] < 0
    assert totals[0] == pytest.approx(-totals[1], rel=0.3)


def test_noise_leaves_zeros_and_integers() -> None:
    with RoundingNoise(0, 1.0):
        assert not (torch.zeros(3) * 2).any()
        assert (torch.arange(3) * 2).tolist() == [0, 2, 4]


def sharded(model: nn.Module, mesh: DeviceMesh) -> None:
    fully_shard(model, mesh=mesh["dp"])


def mean(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return out.mean()


def own_step(
    model: nn.Module, batch: torch.Tensor, optimizer: torch.optim.Optimizer
) -> None:
    mean(model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("more", [{"loss": mean}, {"step": own_step}])
def test_a_difference_in_the_rounding_of_a_cancelling_sum_is_silent(
    more: dict[str, Any],
) -> None:
    """Each rank adds its own part of terms that cancel, and the sum is scaled up."""
    terms = torch.randn(64, 8, dtype=torch.float64)
    terms = torch.cat([terms, -terms.flip(0)])

    result = parity(
        lambda: nn.Linear(8, 8).cuda(),
        sharded,
        lambda: terms.cuda(),
        **more,
        layouts=["dp=2", "dp=8"],
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.1, eps=1e-18),
    )
    assert result.is_right, str(result)


def test_a_small_mistake_is_found() -> None:
    """A part of 1e-9 of a gradient is wrong."""

    def loss(model: nn.Module, batch: torch.Tensor, mesh: Any) -> torch.Tensor:
        factor = 1.0 if mesh is None else 1.0 + 1e-9
        out: torch.Tensor = model(batch)
        return out.square().mean() * factor

    result = parity(
        lambda: nn.Linear(8, 8).cuda(),
        sharded,
        lambda: torch.randn(8, 8, device="cuda"),
        loss,
        layouts=["dp=2"],
    )
    first = result.mistakes[0].finding
    assert first.quantity in {Quantity.GRADIENT, Quantity.STEPPED}


# Layouts of 2, 4 and 8 ranks, all kinds of blocks and optimizers; by day, the cheaper half.
BY_DAY = {1, 3, 4, 5, 8, 10}


@pytest.mark.long
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed in BY_DAY else pytest.mark.nightly)
        for seed in range(12)
    ],
)
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_an_ill_conditioned_right_training_is_right(seed: int) -> None:
    result = parity(**ill_conditioned.training(seed))
    assert result.is_right, str(result)
