"""Each file of tests says what it is about, and its code is read once.

No condition stands inside of an expression that acts, and no name is a riddle.
In all of the repository, no comment stands behind a bracket that starts its line: a formatter has
moved it away from its value.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A name says what a value is: `result`, `message`, `violations`, `capabilities`.
RIDDLES = {"able", "said", "told"}


def problems(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the remedy of each place that a reader reads twice."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.For(iter=ast.IfExp() as choice):
                yield choice.lineno, "name what the loop runs over in a line before it"
            case ast.comprehension(iter=ast.IfExp() as choice):
                yield choice.lineno, "name what the loop runs over in a line before it"
            case ast.Expr(value=ast.IfExp()):
                yield node.lineno, "use an `if` statement"
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                if name in RIDDLES:
                    yield node.lineno, f"name the thing that `{name}` is"


def has_docstring(source: str) -> bool:
    """Tell whether a file begins with a docstring; an empty file needs none."""
    return not source or source.startswith('"""')


def test_each_file_of_tests_begins_with_a_docstring() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    found = [file for file in files if not has_docstring(file.read_text())]
    assert found == []
    assert not has_docstring("import torch\n")


def test_code_of_tests_reads_once() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {remedy}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for line, remedy in problems(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "for each in a if b else c: f(each)",
        "found = [each for each in (a if b else c)]",
        "f() if b else g()",
        "told = f()",
        "def f(able): ...",
        "with f() as said: ...",
    ],
)
def test_planted_riddle_is_found(source: str) -> None:
    assert len([*problems(source)]) == 1


@pytest.mark.parametrize(
    "source",
    ["for each in a: f(each)", "found = a if b else c", "found = each.told"],
)
def test_a_plain_statement_is_fine(source: str) -> None:
    assert [*problems(source)] == []
