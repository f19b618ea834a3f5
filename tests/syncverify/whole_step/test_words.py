"""The words of mistakes: causes, names, places, and parts of what rounding explains."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from syncverify.simulation.simulation import Simulation
from syncverify.whole_step import causes
from syncverify.whole_step.cause_words import words_of
from syncverify.whole_step.causes import LacksSum, NotUpdated, Unexplained, Weighted
from syncverify.whole_step.differences import ComparedValue
from syncverify.whole_step.findings import WrongQuantity
from syncverify.whole_step.grouped_names import some_names
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.outcome import (
    Comparison,
    FoundMistake,
    LayoutPlay,
    worst_errors,
)
from syncverify.whole_step.places import places_of
from syncverify.whole_step.text import headline, text_of
from syncverify.whole_step.training import Training
from syncverify.whole_step.values import Quantity

_CAUSES = [
    each
    for each in vars(causes).values()
    if isinstance(each, type) and "word" in getattr(each, "__dataclass_fields__", {})
]


@pytest.mark.parametrize("cause", [e for e in _CAUSES if e is not Unexplained])
def test_each_cause_has_words(cause: type) -> None:
    assert words_of.dispatch(cause) is not words_of.dispatch(object)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a.weight", "b.weight"], "a.weight, b.weight"),
        ([f"b.{i}.norm.weight" for i in (0, 1, 2, 5)], "b.{0-2,5}.norm.weight"),
        (["3.weight", "3.bias"], "3.weight, 3.bias"),
        (["b.1.experts.0", "b.1.experts.1"], "b.1.experts.0, b.1.experts.1"),
        (
            [f"b.{i}.{j}" for i in (0, 1) for j in "abcd"],
            "b.{0-1}.a, b.{0-1}.b, and 4 more",
        ),
    ],
)
def test_names_of_equal_layers_are_one(names: list[str], text: str) -> None:
    assert some_names(names, 2) == text


def _value(got: float, right: float, tolerance: float = 1e-12) -> ComparedValue:
    tensors = torch.tensor([got]).double(), torch.tensor([right]).double()
    return ComparedValue(
        Quantity.GRADIENT, 0, "w", {0: tensors[0]}, {0: tensors[1]}, tolerance
    )


@pytest.mark.parametrize(
    ("value", "error", "share"),
    [
        (_value(2.0, 1.0), 1.0, 1e12),
        # Zero in exact arithmetic: a difference is no large part of it.
        (_value(3e-17, 1e-20), 1.0, 3e-5),
        (_value(0.0, 0.0), 0.0, 0.0),
        (_value(math.nan, 1.0), math.inf, math.inf),
        (_value(math.inf, math.inf), 0.0, 0.0),
    ],
)
def test_a_difference_has_a_size(
    value: ComparedValue, error: float, share: float
) -> None:
    assert value.error == pytest.approx(error, rel=1e-2)
    assert value.share_of_rounding == pytest.approx(share, rel=1e-2)


def _text(*values: ComparedValue) -> str:
    layout = Layout.of({"dp": 1})
    played = LayoutPlay(
        layout,
        1,
        Simulation("", 1, "cuda", 0),
        num_values=len(values),
        worst=worst_errors(values),
    )
    return text_of(Comparison("", "", (played,), (), 1, 0))


def test_right_values_are_related_to_rounding() -> None:
    noise = replace(_value(3e-14, 1e-20), name="zero")
    assert "off by at most 3.0 % of what rounding explains" in _text(
        noise, _value(1.0, 1.0)
    )
    assert "2 values, all equal" in _text(_value(1.0, 1.0), _value(0.0, 0.0))


def _finding(cause: Any, *names: str) -> WrongQuantity:
    values = tuple(replace(_value(2.0, 1.0), name=name) for name in names)
    return WrongQuantity(Quantity.GRADIENT, 1, cause, values, (), 9)


def test_the_first_line_has_all() -> None:
    finding = _finding(LacksSum(frozenset({"tp"})), "b.0.w", "b.1.w")
    found = FoundMistake(finding, Layout.of({"dp": 1, "tp": 2}), 2, (), None, ())
    assert headline(found) == (
        "gradient of b.{0-1}.w: lacks the sum over `tp` (dp=1,tp=2, 2 micro-batches, step 2, "
        "rank 0)"
    )


def _own(*_: object) -> None: ...


@pytest.mark.parametrize(
    ("cause", "more", "functions"),
    [
        (LacksSum(frozenset({"tp"})), {}, ["parallelize"]),
        (LacksSum(frozenset({"tp"})), {"step": _own}, ["_own", "parallelize"]),
        (Weighted((1.0,), are_equal=False), {}, ["loss"]),
        # The optimizer of a training that names none has no line of the user.
        (NotUpdated((0,)), {}, ["parallelize"]),
    ],
)
def test_a_place_is_a_function_of_the_user(
    cause: Any, more: dict[str, Any], functions: list[str]
) -> None:
    def parallelize() -> None: ...

    def loss() -> None: ...

    training = Training(
        build=_own, parallelize=parallelize, batch=_own, loss=loss, **more
    )
    places = places_of(_finding(cause, "w"), training, Layout.of({"tp": 2}), None)
    assert [each.function for each in places] == functions
    lines = {each.function: each.number for each in places}
    first = parallelize.__code__.co_firstlineno
    assert lines.get("parallelize", first) == first
