"""A comparison with one rank as text."""

from dataclasses import replace

import pytest

from syncverify.simulation.simulation import Simulation
from syncverify.whole_step.differences import ComparedValue
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.outcome import LayoutPlay, worst_errors
from syncverify.whole_step.text import play_words
from tests.syncverify.whole_step.comparisons import compared


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((compared(1.0, 1.0), compared(0.0, 0.0)), "right, 2 values, all equal"),
        (
            (replace(compared(3e-14, 1e-20), name="zero"), compared(1.0, 1.0)),
            "right, 2 values, off by at most 3.0 % of what rounding explains",
        ),
    ],
)
def test_verdict_of_right_values_gives_their_share_of_rounding(
    values: tuple[ComparedValue, ...], text: str
) -> None:
    played = LayoutPlay(
        Layout.of({"dp": 1}),
        num_micro_batches=1,
        simulation=Simulation("", 1, "cuda", 0),
        num_values=len(values),
        worst=worst_errors(values),
    )
    assert play_words(played) == f"1 micro-batch: {text}"
