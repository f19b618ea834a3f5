"""Weights that are tied across the stages of a pipeline."""

from __future__ import annotations

import functools

import pytest

from syncverify.whole_step.causes import LacksSum
from tests.syncverify.whole_step import right_programs
from tests.syncverify.whole_step.planted.steps import compare


@pytest.mark.slow
def test_tied_weights_that_are_not_summed_over_stages_are_named() -> None:
    wrong = functools.partial(right_programs.staged_step, adds_tied=False)
    result = compare(
        build=right_programs.Tied,
        parallelize=right_programs.own_stage,
        batch=right_programs.rows,
        loss=right_programs.loss,
        layouts=["pp=2"],
        step=wrong,
    )
    (mistake,) = result.mistakes
    assert [each.name for each in mistake.finding.differences] == ["embedding.weight"]
    assert mistake.finding.cause == LacksSum(frozenset({"pp"}))
    assert "lacks the sum over `pp`" in str(result)
    assert "not compared" not in str(result)
