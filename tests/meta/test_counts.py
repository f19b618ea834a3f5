"""No text of the harness leaves a number open, as `rank(s)` does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import syncverify

OPEN_NUMBER = re.compile(r"[a-z]+\(e?s\)")


def open_numbers(source: str) -> Iterator[str]:
    """Yield texts such as `rank(s)` in the strings of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from OPEN_NUMBER.findall(node.value)


def test_no_text_leaves_a_number_open() -> None:
    (folder,) = syncverify.__path__
    files = [*Path(folder).rglob("*.py")]
    assert files
    assert [f for f in files if any(open_numbers(f.read_text("utf-8")))] == []


def test_an_open_number_is_found() -> None:
    assert [*open_numbers('print(f"{count} rank(s)")')] == ["rank(s)"]
    assert not [*open_numbers("rank(s)")]
