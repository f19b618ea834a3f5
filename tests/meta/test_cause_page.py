"""Each cause has a meaning, a repair and a line of the page."""

from syncverify.judge.cause import VAGUE_CAUSES, VALUE_CAUSES
from syncverify.report.causes import MEANINGS
from syncverify.report.hints import CAUSES_WITH_HINT


def test_each_cause_has_a_meaning_and_a_hint() -> None:
    assert {*MEANINGS} == {*CAUSES_WITH_HINT}
    assert MEANINGS.keys() >= VAGUE_CAUSES | VALUE_CAUSES
