"""The answers of several subjects of the same code."""

from dataclasses import replace

from syncverify.explain.waits.answers import Answer, NeedWord, joined
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.sync_points import PointKind, SyncPoint


def of_line(
    number: int, word: NeedWord, count: int = 1, kind: PointKind = "stream_wait"
) -> Answer:
    point = SyncPoint(kind, SourceLine("sync.py", number, "join"))
    return Answer(point, "", word, count, exposed_microseconds=float(count))


def test_a_line_is_needed_if_one_subject_needs_it() -> None:
    needed, extra = of_line(1, "needed", 2), of_line(1, "superfluous", 5)
    both = replace(needed, num_scenarios=7, exposed_microseconds=5.0)
    assert joined([needed, extra]) == joined([extra, needed]) == (both,)


def test_a_line_that_one_subject_does_not_decide_is_undecided() -> None:
    assert [
        each.word
        for each in joined([of_line(1, "superfluous"), of_line(1, "undecided")])
    ] == ["undecided"]


def test_a_line_that_one_subject_never_ran_has_the_word_of_the_other() -> None:
    """The kind of a call that never ran is read from the source, and may be another one."""
    never = of_line(1, "undecided", 0, "work_wait"), of_line(2, "undecided", 0)
    ran = of_line(1, "superfluous"), of_line(2, "needed")
    assert joined([*never, *ran]) == joined([*ran, *never]) == ran


def test_a_line_that_no_subject_ran_stays_undecided() -> None:
    never = of_line(2, "undecided", 0)
    assert joined([never, of_line(1, "needed"), never]) == (of_line(1, "needed"), never)
