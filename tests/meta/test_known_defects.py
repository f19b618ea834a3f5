"""Pages that name tests name tests that exist: known defects, faults, cases of other projects."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from studies.pages.cases_page import SUITES, TESTS, VERDICTS, Case, cases

ROOT = Path(__file__).parents[2]
OF_SYNCHRONIZER = ROOT / "tests" / "synchronizer"
DEFECTS = (ROOT / "docs" / "known-defects.md").read_text()
NAMED = re.compile(r"`(test_\w+\.py)`: `(test_\w+)`")


@cache
def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text() if file.exists() else "")
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def problems(page: str) -> Iterator[str]:
    """Yield the mistakes of the page of known defects."""
    seen: set[str] = set()
    for line in page.splitlines():
        if not line.startswith("| `"):
            continue
        defect, _, sources, here = (cell.strip() for cell in line.strip("|").split("|"))
        if defect in seen:
            yield f"{defect} is listed twice"
        seen.add(defect)
        if not re.search(r"\[[\w-]+#\d+\]\(https://github\.com/", sources):
            yield f"{defect} has no source"
        tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", here)
        if not tests and not re.match(r"cannot: \w", here):
            yield f"{defect} has neither a test nor a reason"
        for file, test in tests:
            if test not in functions(OF_SYNCHRONIZER / file):
                yield f"{defect}: there is no {test} in {file}"


@pytest.mark.slow
def test_every_known_defect_has_a_test_or_a_reason() -> None:
    assert "\n| `" in DEFECTS
    assert list(problems(DEFECTS)) == []


def test_every_test_of_a_known_defect_is_on_the_page() -> None:
    tests = {
        f"`known_defects/{file.name}::{test}`"
        for file in (OF_SYNCHRONIZER / "known_defects").glob("test_*.py")
        for test in functions(file)
    }
    assert tests
    assert [test for test in sorted(tests) if test not in DEFECTS] == []


def test_mistakes_on_the_page_are_found() -> None:
    row = "| `{}` | it went wrong | {} | {} |"
    source = "[x#1](https://github.com/x/x/issues/1)"
    page = [
        row.format("a", source, "`test_streams.py::test_nothing_at_all`"),
        row.format("b", source, "soon"),
        row.format("c", "nowhere", "cannot: it is another thing"),
        row.format("c", source, "cannot: it is another thing"),
    ]
    assert list(problems("\n".join(page))) == [
        "`a`: there is no test_nothing_at_all in test_streams.py",
        "`b` has neither a test nor a reason",
        "`c` has no source",
        "`c` is listed twice",
    ]


@pytest.mark.parametrize("name", ["faults.md", "synchronizer-faults.md"])
def test_tests_of_faults_exist(name: str) -> None:
    named = NAMED.findall((ROOT / "docs" / name).read_text())
    assert named
    assert [
        (file, test)
        for file, test in named
        if not any(test in functions(path) for path in (ROOT / "tests").rglob(file))
    ] == []


@pytest.mark.parametrize("suite", SUITES)
def test_every_case_has_a_test_or_a_reason(suite: str) -> None:
    listed = [case for case in cases() if case.suite == suite]
    assert len({case.name for case in listed}) == len(listed) > 0
    assert [case for case in listed if not is_right(case)] == []


def is_right(case: Case) -> bool:
    if case.verdict == "does not apply":
        return not case.test and bool(case.reason)
    file, _, test = case.test.partition("::")
    folder = OF_SYNCHRONIZER if "/" in file else TESTS
    is_refusal = "refused" in test
    return test in functions(folder / file) and is_refusal == (
        case.verdict == "refuses"
    )


def test_every_row_is_of_a_suite_and_every_test_is_of_a_row() -> None:
    assert {case.suite for case in cases()} == {*SUITES}
    assert {case.verdict for case in cases()} == {*VERDICTS}
    files = TESTS.glob("test_*.py")
    own = {f"{file.name}::{test}" for file in files for test in functions(file)}
    assert own - {case.test for case in cases()} == set()
