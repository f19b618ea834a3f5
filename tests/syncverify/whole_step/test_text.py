"""A comparison with one rank as text."""

from dataclasses import replace

import pytest

from syncverify.simulation.simulation import Simulation
from syncverify.whole_step.causes import LacksSum
from syncverify.whole_step.differences import ComparedValue
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.outcome import FoundMistake, LayoutPlay, worst_errors
from syncverify.whole_step.text import headline, play_words
from tests.syncverify.whole_step.comparisons import compared, finding


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


def test_headline_has_values_cause_layout_step_and_rank() -> None:
    found = FoundMistake(
        finding(LacksSum(frozenset({"tp"})), "b.0.w", "b.1.w"),
        Layout.of({"dp": 1, "tp": 2}),
        2,
        (),
        None,
        (),
    )
    assert headline(found) == (
        "gradient of b.{0-1}.w: lacks the sum over `tp` (dp=1,tp=2, 2 micro-batches, step 2, "
        "rank 0)"
    )
