"""Each cause of a wrong value has words."""

from syncverify.whole_step import causes
from syncverify.whole_step.cause_words import words_of
from syncverify.whole_step.causes import LacksSum, Unexplained, Weighted


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
