"""The example with a mistake of wiring."""

import pytest

from examples import parity_gpt
from syncverify.whole_step.causes import LacksSum
from syncverify.whole_step.described import described
from syncverify.whole_step.parity import comparisons


@pytest.mark.long
def test_norms_of_heads_lack_a_sum() -> None:
    *_, last = comparisons(described(parity_gpt))
    (mistake,) = last.mistakes
    assert mistake.finding.cause == LacksSum(frozenset({"tp"}))
    assert str(mistake.layout) == "dp=1,tp=2"
    assert [each.name for each in mistake.finding.differences] == [
        "blocks.0.attention.q_norm.weight",
        "blocks.0.attention.k_norm.weight",
    ]
