"""The table of other projects' test cases names a test of ours for each, or a reason."""

import ast

import pytest

from studies.pages.cases_page import SUITES, TESTS, VERDICTS, Case, cases

FUNCTIONS = {
    f"{file.name}::{node.name}"
    for file in TESTS.glob("test_*.py")
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}


@pytest.mark.parametrize("suite", SUITES)
def test_every_case_has_a_test_or_a_reason(suite: str) -> None:
    listed = [case for case in cases() if case.suite == suite]
    assert len({case.name for case in listed}) == len(listed) > 0
    assert [case for case in listed if not is_right(case)] == []


def is_right(case: Case) -> bool:
    if case.verdict == "does not apply":
        return not case.test and bool(case.reason)
    is_refusal = "refused" in case.test
    return case.test in FUNCTIONS and is_refusal == (case.verdict == "refuses")


def test_every_row_is_of_a_suite_and_every_test_is_of_a_row() -> None:
    assert {case.suite for case in cases()} == {*SUITES}
    assert {case.verdict for case in cases()} == {*VERDICTS}
    assert {case.test for case in cases() if case.test} == FUNCTIONS
