"""The table of layouts against tensors, and its page."""

from __future__ import annotations

import torch

from syncverify.simulation.simulation import Simulation
from syncverify.whole_step.causes import LacksSum
from syncverify.whole_step.differences import ComparedValue
from syncverify.whole_step.findings import WrongQuantity
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.layout_table import (
    LayoutCell,
    LayoutRow,
    LayoutVerdict,
    rows_of,
)
from syncverify.whole_step.outcome import Comparison, LayoutPlay, worst_errors
from syncverify.whole_step.page import page_of
from syncverify.whole_step.values import Quantity, StateName


def _value(quantity: Quantity, name: str, got: float) -> ComparedValue:
    right, ours = (torch.tensor([e], dtype=torch.float64) for e in (1.0, got))
    return ComparedValue(quantity, 0, name, {0: ours}, {0: right}, 1e-12)


def _play(axis: str, *values: ComparedValue, wrong: int = 0) -> LayoutPlay:
    """Make a play whose first values are the mistake."""
    cause = LacksSum(frozenset({axis}))
    mistake = WrongQuantity(
        Quantity.GRADIENT, 0, cause, values[:wrong], (), len(values)
    )
    return LayoutPlay(
        Layout.of({axis: 2}),
        1,
        Simulation("", 2, "cuda", 0),
        num_values=len(values),
        worst=worst_errors(values),
        findings=(mistake,) if wrong else (),
    )


def _wrong() -> LayoutPlay:
    gradient, state = Quantity.GRADIENT, Quantity.STATE
    return _play(
        "tp",
        _value(gradient, "b.0.norm", 1.5),
        _value(gradient, "b.1.norm", 1.25),
        _value(gradient, "b.0.up", 1.0),
        _value(gradient, "b.1.up", 1.0),
        # The state of the optimizer shows it later, and by more.
        _value(state, StateName.of("b.0.norm", "exp_avg"), 3.0),
        _value(state, StateName.of("b.1.up", "exp_avg"), 1.01),
        wrong=2,
    )


def test_equal_layers_are_one_row() -> None:
    right = _play("dp", *(_value(Quantity.GRADIENT, n, 1.0) for n in ("b.0.up", "out")))
    none, is_right = LayoutCell(LayoutVerdict.NONE), LayoutCell(LayoutVerdict.RIGHT)
    follows = LayoutCell(LayoutVerdict.FOLLOWS, 0.010000000000000009, Quantity.STATE)
    assert rows_of([right, _wrong()]) == [
        LayoutRow("b.0.up", (is_right, is_right)),
        LayoutRow("out", (is_right, none)),
        LayoutRow(
            "b.{0-1}.norm",
            (none, LayoutCell(LayoutVerdict.MISTAKE, 0.5, Quantity.GRADIENT)),
        ),
        LayoutRow("b.1.up", (none, follows)),
    ]


def test_the_page_has_words_and_shades() -> None:
    page = page_of(Comparison("", "", (_wrong(),), (), 1, 0))
    assert 'class="mistake" style="--shade: 55%">off by 50 %' in page
    assert 'class="follows" style="--shade: 28%">off by 1.0 %' in page
    # No number has an exponent.
    assert "e-0" not in page.split('id="layouts"')[1].split("</section>")[0]
