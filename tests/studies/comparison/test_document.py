"""The page of the comparison: counts of catches and alarms, and marks of each defect."""

import re
from dataclasses import replace
from pathlib import Path

from studies.comparison.document import page_of
from studies.comparison.methods.all_methods import METHODS
from studies.comparison.outcomes import Outcome
from studies.comparison.verdicts import SILENT, Verdict, alarm

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "comparison.md").read_text("utf-8")
FIGURES = ROOT / "studies" / "results" / "comparison.json"


def outcome(
    name: str, *, caught: str, alarmed: str = "", silent: bool = True
) -> Outcome:
    def verdicts_of(method: str) -> dict[str, Verdict]:
        return {m.id: alarm("a | b") if m.id == method else SILENT for m in METHODS}

    return Outcome(name, "numerics", silent, verdicts_of(caught), verdicts_of(alarmed))


OUTCOMES = [
    outcome("first", caught="allclose", alarmed="loss_parity"),
    outcome("second", caught="allclose", silent=False),
]


def rows(text: str, start: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in text.splitlines()
        if line.startswith(f"| {start} |")
    ]


def test_what_is_caught_and_missed_is_counted() -> None:
    summary, by_section = rows(page_of(OUTCOMES, 2), "cross-rank `allclose`")
    assert summary == ["cross-rank `allclose`", "2", "2", "1 of 1", "0", "0"]
    assert by_section == ["cross-rank `allclose`", "2/2"]


def test_a_false_alarm_is_no_catch() -> None:
    summary, _ = rows(page_of(OUTCOMES, 2), "loss parity")
    assert summary == ["loss parity", "2", "0", "0 of 1", "2", "1"]


def test_a_case_that_was_not_played_is_not_missed() -> None:
    first, second = OUTCOMES
    left = {
        name: verdict for name, verdict in first.defect.items() if name != "allclose"
    }
    text = page_of([replace(first, defect=left), second], 2)
    summary, _ = rows(text, "cross-rank `allclose`")
    assert summary == ["cross-rank `allclose`", "1", "1", "0 of 0", "0", "0"]
    assert rows(text, "`first`")[0][2] == "`.`"


def test_each_defect_has_a_mark_for_each_method() -> None:
    (first, *_) = rows(page_of(OUTCOMES, 2), "`first`")
    assert first == ["`first`", "yes", "`x`", "`-!`", *["`-`"] * (len(METHODS) - 2)]


def test_words_do_not_end_a_cell() -> None:
    assert "`a / b`" in page_of(OUTCOMES, 2)


def test_a_part_is_called_a_part() -> None:
    assert "All 2 defects of the bank." in page_of(OUTCOMES, 2)
    assert "2 of the 3 defects of the bank" in page_of(OUTCOMES, 3)


def test_the_page_has_a_paragraph_for_each_method() -> None:
    for method in METHODS:
        assert f"### {method.title}\n\n" in PAGE


def test_the_page_counts_what_it_lists() -> None:
    marks = re.findall(r"^\| `[\w-]+` \| (?:yes|no) \|(.*)\|$", PAGE, re.MULTILINE)
    caught = sum("`x" in line.split("|")[0] for line in marks)
    summary, _ = rows(PAGE, "cross-rank `allclose`")
    assert summary[2] == str(caught)
