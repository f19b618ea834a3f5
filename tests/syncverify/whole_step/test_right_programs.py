"""Right trainings differ from one rank by rounding alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from syncverify import parity
from syncverify.whole_step.causes import OwnParts
from syncverify.whole_step.clipping import clip_over_meshes
from syncverify.whole_step.training import Function
from tests.syncverify.whole_step import right_programs
from tests.syncverify.whole_step.right_programs import RIGHT, Right

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),
]


@pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.name)
def test_a_right_training_is_silent(right: Right) -> None:
    result = parity(
        right.build,
        right.parallelize,
        right.batch,
        right.loss,
        layouts=[right.layout],
        device="cpu",
        **right.more,
    )
    assert result.is_right, str(result)
    plain = [each for each in result.plays if each.variation is None]
    assert all(each.num_values >= 15 for each in plain)
    assert all(not each.absent and not each.added for each in result.plays)
    num_varied = len(result.plays) - len(plain)
    assert num_varied == (2 if "scaler" in right.more else 0)
    assert all(each.is_tried for each in result.plays)
    assert max(each.worst_error for each in plain) <= (0 if right.is_exact else 1e-12)


def own_step(right: Right) -> Function:
    """Return a step of the user's own, as torch's tutorials have it."""

    def step(
        model: nn.Module, micro_batches: list[Any], optimizer: Any, scaler: Any
    ) -> dict[str, torch.Tensor]:
        optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
        returned = dict[str, torch.Tensor]()
        for each in micro_batches:
            loss = right.loss(model, each) / len(micro_batches)
            (loss if scaler is None else scaler.scale(loss)).backward()
        for each in optimizers if scaler is not None else ():
            scaler.unscale_(each)
        if (clip := right.more.get("clip")) is not None:
            parameters = dict.fromkeys(model.parameters())
            returned["norm"] = clip_over_meshes(parameters, clip)
        for each in optimizers:
            each.step() if scaler is None else scaler.step(each)
            each.zero_grad()
        if scaler is not None:
            scaler.update()
        return returned

    return step


# The others are played at night.
BY_DAY = ("tp-and-sp", "experts", "scaler-ddp")
# A pipeline needs two layouts; `test_own_step` has one.
ALONE = [
    pytest.param(
        each, id=each.name, marks=[] if each.name in BY_DAY else pytest.mark.nightly
    )
    for each in RIGHT
    if each.name != "tied-across-stages"
]


@pytest.mark.parametrize("right", ALONE)
def test_an_own_step_that_is_right_is_silent_without_a_loss(right: Right) -> None:
    more = {"step": own_step(right), **right.more}
    result = parity(
        right.build,
        right.parallelize,
        right.batch,
        layouts=[right.layout],
        device="cpu",
        **more,
    )
    assert result.is_right, str(result)
    words = [each.variation.word for each in result.plays if each.variation]
    assert ("all-ones" in words) == ("clip" in right.more)
    assert all(each.is_tried and not each.unexplained for each in result.plays)


def test_statistics_of_each_ranks_own_rows_are_another_function() -> None:
    """A batch norm in training is no mistake of a gradient, and differs from one rank."""

    def build() -> nn.Module:
        return right_programs.normalized().train()

    result = parity(
        build,
        right_programs.ddp,
        right_programs.rows,
        right_programs.loss,
        layouts=["dp=2"],
        device="cpu",
    )
    (mistake,) = result.mistakes
    assert mistake.finding.cause == OwnParts()
    assert len(mistake.finding.differences) > 3
    assert "as with a batch norm" in str(result)
