"""Which mistake gives a norm: from squares of ranks' parts, without a play."""

import math

import pytest

from syncverify.judge.whole_step.causes import Joined, NormMistake, NormOf, NormOfNorms
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.mesh_play import Squares
from syncverify.judge.whole_step.norm_causes import wrong_squares

DP, TP = frozenset({"dp"}), frozenset({"tp"})
# Squares on ranks of dp=2,tp=2, by rank.
PARTS = {"both": (1, 2, 4, 9), "rows": (3, 3, 5, 5), "copy": (7, 7, 7, 7)}
OWN = [*map(math.sqrt, (11, 12, 16, 21))]
SPLIT_OVER = {"both": DP | TP, "rows": DP, "copy": frozenset[str]()}


@pytest.mark.parametrize(
    ("norms", "cause"),
    [
        # Of the rows of `dp` 13 and 25, of the columns of `tp` 20 and 26.
        ([math.sqrt(16 + 8 + 7)] * 4, None),
        ([(math.sqrt(13) + math.sqrt(25)) / 2] * 4, NormOfNorms(Joined.MEAN, DP)),
        ([math.sqrt(13) + math.sqrt(25)] * 4, NormOfNorms(Joined.SUM, DP)),
        ([math.sqrt((13 + 25) / 2)] * 4, NormOfNorms(Joined.ROOT_OF_MEAN, DP)),
        ([math.sqrt(25)] * 4, NormOfNorms(Joined.LARGEST, DP)),
        ([(math.sqrt(20) + math.sqrt(26)) / 2] * 4, NormOfNorms(Joined.MEAN, TP)),
        ([sum(OWN) / 4] * 4, NormOfNorms(Joined.MEAN, DP | TP)),
        (OWN, NormOf(("both", "rows"), DP | TP, is_missing=True)),
    ],
)
def test_a_norm_of_norms_is_named_with_its_axes(
    norms: list[float], cause: NormMistake | None
) -> None:
    by_rank = [{name: PARTS[name][rank] for name in PARTS} for rank in range(4)]
    squares = Squares(Layout.of({"dp": 2, "tp": 2}), by_rank, SPLIT_OVER)
    assert wrong_squares(dict(enumerate(norms)), squares) == cause
