"""Right trainings differ from one rank by rounding alone."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from syncverify import parity
from syncverify.faces.whole_step.outcome import Parity
from syncverify.faces.whole_step.training import Function
from syncverify.faces.whole_step.wired import clip_over_meshes
from syncverify.judge.whole_step.causes import OwnParts
from syncverify.judge.whole_step.differences import TOLERANCE
from tests.syncverify.faces.whole_step import right_programs
from tests.syncverify.faces.whole_step.right_programs import RIGHT, Right

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),
]

VARIATIONS = {
    "weights": ["unequal-tokens", "padding"],
    "scaler": ["overflow", "nan", "local-overflow"],
}


def play(right: Right, *functions: Function, **more: Any) -> Parity:
    return parity(
        right.build,
        right.parallelize,
        right.batch,
        *functions,
        layouts=[right.layout],
        **{"device": "cpu", **right.more, **more},
    )


def not_compared(result: Parity, model: nn.Module) -> Iterator[str]:
    """Yield what the verdict leaves out: a training is right only where all is compared."""
    trained = sum(1 for each in model.parameters() if each.requires_grad)
    # Each trained parameter has a gradient and a value after each step.
    fewest = 2 * trained * result.num_steps
    for each in result.plays:
        yield from (f"absent: {name}" for name in each.absent)
        yield from (f"added: {name}" for name in each.added)
        yield from (f"unexplained: {finding}" for finding in each.unexplained)
        if not each.is_tried:
            yield f"not tried: {each.variation}"
        if each.variation is None and each.num_values < fewest:
            yield f"{each.num_values} values of at least {fewest}"


def variations(result: Parity) -> list[str]:
    return [each.variation.word for each in result.plays if each.variation]


@pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.name)
def test_all_values_of_a_right_training_are_right(right: Right) -> None:
    result = play(right, right.loss)
    assert result.is_right, str(result)
    assert [*not_compared(result, right.build())] == []
    expected = [
        w for name, words in VARIATIONS.items() if name in right.more for w in words
    ]
    assert variations(result) == expected
    largest = max(each.worst_error for each in result.plays if not each.variation)
    assert largest <= TOLERANCE


def own_step(right: Right) -> Function:
    """Return a step of the user's own, as torch's tutorials have it."""

    def step(model, micro_batches, optimizer, scaler):
        optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
        # One that is not enabled changes nothing.
        scaler = scaler or GradScaler("cpu", enabled=False)
        returned = dict[str, torch.Tensor]()
        for each in micro_batches:
            scaler.scale(right.loss(model, each) / len(micro_batches)).backward()
        for each in optimizers:
            scaler.unscale_(each)
        if (clip := right.more.get("clip")) is not None:
            parameters = dict.fromkeys(model.parameters())
            returned["norm"] = clip_over_meshes(parameters, clip)
        for each in optimizers:
            scaler.step(each)
            each.zero_grad()
        scaler.update()
        return returned

    return step


# The others are played at night.
BY_DAY = ("tp-and-sp", "experts", "scaler-ddp")
# A pipeline needs two layouts: `test_own_step.py` plays one. `own_step` knows no weights.
WITH_A_LOSS = ("tied-across-stages", "weights-on-cuda")
ALONE = [
    pytest.param(
        each, id=each.name, marks=[] if each.name in BY_DAY else pytest.mark.nightly
    )
    for each in RIGHT
    if each.name not in WITH_A_LOSS
]


@pytest.mark.parametrize("right", ALONE)
def test_all_values_of_a_right_own_step_are_right_without_a_loss(right: Right) -> None:
    more = {} if "step" in right.more else {"step": own_step(right)}
    result = play(right, **more)
    assert result.is_right, str(result)
    assert [*not_compared(result, right.build())] == []
    # A norm has a closed form where all elements of gradients are equal.
    assert ("all-ones" in variations(result)) == ("clip" in right.more)


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
    # The norm takes the mean away, and with it the bias of the layer before.
    wrong = {each.name for each in mistake.finding.differences}
    assert wrong == {*dict(build().named_parameters())} - {"0.bias"}
    assert "as with a batch norm" in str(result)
