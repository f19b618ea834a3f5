"""Gradients that count a use of a parameter wrongly, or are those of another parameter."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import MixedUp, UsesWeighted
from syncverify.trace.source_lines import code_of_line
from tests.syncverify.faces.whole_step.planted.steps import (
    averaged_step,
    compare,
)

_WIDTH = 4


class Changed(torch.autograd.Function):
    """Return tensors unchanged, and change gradients as a word says."""

    @staticmethod
    def forward(ctx: Any, word: str, *tensors: torch.Tensor) -> Any:
        ctx.word = word
        return tuple(each.clone() for each in tensors)

    @staticmethod
    def backward(ctx: Any, *found: torch.Tensor) -> Any:
        one, *others = (each.clone() for each in found)
        if ctx.word == "add":
            dist.all_reduce(one)
        changed = {
            "add": (one,),
            "double": (2 * one,),
            "lose": (None,),
            "sum": (sum(others, one), None),
            "swap": (*others, one),
            "copy": (one, one),
        }
        return None, *changed[ctx.word]


class Uses(nn.Module):
    """A weight that three layers use, and two more of its shape."""

    def __init__(self, width: int = _WIDTH, *, is_equal: bool = False) -> None:
        super().__init__()
        self.word, self.is_equal = "", is_equal
        self.w, self.a, self.b = (
            nn.Parameter(torch.randn(width, width)) for _ in "wab"
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        second, a, b = self.w, self.a, self.b
        if self.word in {"add", "double", "lose"}:
            (second,) = Changed.apply(self.word, second)  # type: ignore[no-untyped-call]
        elif self.word:
            a, b = Changed.apply(self.word, a, b)  # type: ignore[no-untyped-call]
        x = torch.tanh(x[:, : len(second)] @ self.w)
        x = torch.tanh(x @ second)
        x = x @ self.w
        return x @ a + x @ b if self.is_equal else torch.tanh(x @ a) @ b


def equal() -> Uses:
    """Make a model in which two weights have equal gradients."""
    return Uses(is_equal=True)


def play(word: str, build: Any = Uses) -> Parity:
    def parallelize(model: Uses, mesh: DeviceMesh) -> None:
        model.word = word

    return compare(
        build=build,
        parallelize=parallelize,
        batch=lambda: torch.randn(8, _WIDTH),
        step=averaged_step,
        steps=2,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("word", "names", "words"),
    [
        ("add", "w", "use 2 of 3 in the forward pass counts 2 times what it should: the number of "),
        ("double", "w", "use 2 of 3 in the forward pass counts 2 times what it should (dp=2"),
        ("lose", "w", "use 2 of 3 in the forward pass is lost"),
        ("sum", "ab", "a has that of a and that of b, b has zeros"),
        ("swap", "ab", "a has that of b, b has that of a"),
        ("copy", "b", "b has that of a"),
    ],
)  # fmt: skip
def test_a_wrong_part_of_a_gradient_is_one_mistake(word, names, words):
    result = play(word)
    (mistake,) = result.mistakes
    assert mistake.finding.names == {*names}
    assert words in str(result)
    if isinstance(mistake.finding.cause, UsesWeighted):
        assert "tanh(x @ second)" in code_of_line(mistake.places[0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("word", "build"),
    [("sum", equal), *((word, lambda: Uses(1)) for word in ("add", "sum", "swap"))],
)
def test_one_element_or_an_equal_gradient_proves_no_such_mistake(word, build):
    found = [each.finding.cause for each in play(word, build).mistakes]
    assert found
    assert not any(isinstance(each, MixedUp | UsesWeighted) for each in found)


@pytest.mark.long
def test_right_uses_and_equal_right_gradients_are_right() -> None:
    assert play("").is_right
    assert play("", equal).is_right
