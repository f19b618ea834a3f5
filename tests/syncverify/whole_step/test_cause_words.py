"""Each cause of a wrong value has words."""

import re

import pytest

from syncverify.whole_step import causes
from syncverify.whole_step.cause_words import words_of
from syncverify.whole_step.causes import (
    LacksSum,
    MicroBatchesWeighted,
    OtherCoefficient,
    RanksScaled,
    ReducedOver,
    Scaled,
    StepMistake,
    TermsWeighted,
    Unexplained,
    Weighted,
)
from syncverify.whole_step.values import Quantity


def test_words_of_has_a_function_for_each_cause() -> None:
    found = {
        each
        for each in vars(causes).values()
        if isinstance(each, type)
        and "word" in getattr(each, "__dataclass_fields__", {})
    }
    assert {LacksSum, Weighted, Unexplained} < found
    default = words_of.dispatch(object)
    assert {each for each in found if words_of.dispatch(each) is default} == {
        Unexplained
    }


NEAR = 1 + 2e-9


@pytest.mark.parametrize(
    "cause",
    [
        Scaled(NEAR),
        Scaled(1 / NEAR),
        RanksScaled(((1, NEAR),)),
        LacksSum(frozenset({"dp"}), NEAR),
        ReducedOver(frozenset({"dp"}), frozenset({"tp"}), NEAR),
        TermsWeighted((("main", NEAR),)),
        MicroBatchesWeighted((NEAR, NEAR)),
        Weighted((NEAR, NEAR), are_equal=False),
        OtherCoefficient({0: NEAR / 2}, 0.5),
    ],
)
def test_a_wrong_number_has_another_text_than_the_right_one(cause: StepMistake) -> None:
    text = words_of(cause, Quantity.GRADIENT).said
    numbers = re.findall(r"[0-9]+(?:[.][0-9]+)?", text.replace("rank 0", "rank"))
    assert max(len(each) for each in numbers) > 9, text
    assert "1" not in numbers or "rank 1" in text
