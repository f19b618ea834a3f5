"""Wrong features that fail a run, and ratings beside violations of the contract."""

from dataclasses import replace

from syncverify.report.account import MAX_LINES
from syncverify.report.observed import ObservedFeature, in_one_line, table_lines
from syncverify.report.report import Report
from syncverify.report.run import diagnosis
from syncverify.report.text import verdict
from syncverify.search.observation import INTERRUPTED


def wrong(feature: str, num_lines: int) -> ObservedFeature:
    lines = "\n".join(f"line {number} about {feature}" for number in range(num_lines))
    return ObservedFeature(
        feature, "wrong", {"wrong": 1}, summary="it is wrong", diagnosis=lines
    )


REPORT = Report(
    "mine:Sync", "sim", 7, 20, 1.25, {}, (),
    contract="the plain contract",
    beyond=(wrong("use=twice", 10), wrong("use=masked", 49), wrong("event=tail", 3)),
    fails_on_wrong=True,
)  # fmt: skip


def test_wrong_features_that_fail_a_run_are_named_and_explained() -> None:
    text = diagnosis(REPORT)
    assert text.count("\n") + 1 <= MAX_LINES
    assert text.startswith("WRONG 1 of 3: use=twice, beyond the contract\nline 0 about")
    assert "line 9 about use=twice\n" in text
    assert "\n\nWRONG 3 of 3: event=tail, beyond the contract\nline 0 about" in text
    assert (
        "\nWRONG 2 of 3: use=masked, beyond the contract: it is wrong: syncverify explain "
        "report.json#wrong/2\n"
    ) in text
    assert "line 0 about use=masked" not in text


def test_the_verdict_of_wrong_features_names_them_all() -> None:
    four = replace(REPORT, beyond=(*REPORT.beyond, wrong("event=cast", 1)))
    assert verdict(four) == (
        "WRONG BEYOND THE CONTRACT: mine:Sync held all properties of the plain contract (20 "
        "scenarios on sim, seed 7, 1.2 s); beyond it 4 features give a wrong "
        "gradient without an error: use=twice, use=masked, event=tail, event=cast"
    )


def test_the_verdict_of_a_run_that_passes_has_no_word_about_other_features() -> None:
    allowed = replace(REPORT, fails_on_wrong=False)
    assert diagnosis(allowed) == verdict(allowed)
    assert verdict(allowed) == (
        "NO VIOLATION: mine:Sync held all properties of the plain contract (20 scenarios on "
        "sim, seed 7, 1.2 s)"
    )


def test_a_table_beside_violations_says_that_words_may_come_from_them() -> None:
    note = "  the contract is violated too, and may cause some of these ratings"
    assert note in list(table_lines(REPORT.beyond, is_violated=True))
    assert note not in list(table_lines(REPORT.beyond))


def test_an_early_end_names_a_few_of_the_features_that_were_left() -> None:
    left = tuple(
        ObservedFeature(f"use={number}", "not tried", {}, reason=INTERRUPTED)
        for number in range(90)
    )
    other = ObservedFeature("use=far", "not tried", {}, reason="it moves no data")
    lines = list(table_lines((*left, other, replace(other, feature="use=near"))))
    assert lines[2:] == [
        "    use=0, use=1, use=2 and 87 more: the run was interrupted",
        "    use=far, use=near: it moves no data",
    ]


def test_one_line_counts_the_features_of_each_word() -> None:
    one = ObservedFeature("use=undefined", "right", {"right": 1})
    assert list(in_one_line((*REPORT.beyond, one))) == [
        (
            "not part of the verdict: 4 features that the contract does not promise: 1 right, "
            "3 give a wrong gradient without an error (--tables lists them, --no-beyond skips "
            "them)"
        )
    ]
    assert list(in_one_line((one,), is_violated=True)) == [
        (
            "not part of the verdict: 1 feature that the contract does not promise: 1 right "
            "(--tables lists them, --no-beyond skips them)"
        ),
        "  the contract is violated too, and may cause some of these ratings",
    ]
    assert list(in_one_line(())) == []


def test_features_that_fail_a_run_are_a_part_of_the_verdict() -> None:
    [line] = in_one_line(REPORT.beyond, fails_on_wrong=True)
    assert line == (
        "part of the verdict, because this contract sets `fail_on_wrong`: 3 features that the "
        "contract does not promise: 3 give a wrong gradient without an error (--tables lists "
        "them)"
    )
    title, *_ = table_lines(REPORT.beyond, fails_on_wrong=True)
    assert title.startswith("part of the verdict, ")
