"""The page of known defects names tests that exist, or says why there is none."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "synchronizer"
PAGE = (ROOT / "docs" / "known-defects.md").read_text()


def problems(page: str) -> Iterator[str]:
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
            if test not in functions(TESTS / file):
                yield f"{defect}: there is no {test} in {file}"


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text() if file.exists() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.slow
def test_every_known_defect_has_a_test_or_a_reason() -> None:
    assert "\n| `" in PAGE
    assert list(problems(PAGE)) == []


def test_every_test_of_a_known_defect_is_on_the_page() -> None:
    tests = {
        f"`known_defects/{file.name}::{test}`"
        for file in (TESTS / "known_defects").glob("test_*.py")
        for test in functions(file)
        if test.startswith("test_")
    }
    assert tests
    assert [test for test in sorted(tests) if test not in PAGE] == []


def test_mistakes_on_the_page_are_found() -> None:
    row = "| `{}` | it went wrong | {} | {} |"
    source = "[x#1](https://github.com/x/x/issues/1)"
    page = [
        row.format("a", source, "`test_streams.py::test_nothing_at_all`"),
        row.format("b", source, "`test_nowhere.py::test_x`"),
        row.format("c", source, "soon"),
        row.format("d", "nowhere", "cannot: it is another thing"),
        row.format("d", source, "cannot: it is another thing"),
    ]
    assert list(problems("\n".join(page))) == [
        "`a`: there is no test_nothing_at_all in test_streams.py",
        "`b`: there is no test_x in test_nowhere.py",
        "`c` has neither a test nor a reason",
        "`d` has no source",
        "`d` is listed twice",
    ]
