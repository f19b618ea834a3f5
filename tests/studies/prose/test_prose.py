"""Words and long sentences are counted, and too many fail the command."""

from pathlib import Path

import pytest

from studies.prose import __main__ as command
from studies.prose.counting import (
    LONGEST_SENTENCE,
    RULES,
    Count,
    comments,
    count,
    docstrings,
    pages,
)

DIALECT = '''"""Whoever reads of what nobody told."""

x = 1  # whose it is, as ever


def f():
    """Likewise."""
'''
*_, SENTENCES = RULES


def write(root: Path, place: str, text: str) -> None:
    file = root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_docstrings_are_counted_without_comments(tmp_path: Path) -> None:
    write(tmp_path, "a.py", DIALECT)
    assert count("a", docstrings(tmp_path)) == Count("a", 7, (4, 0, 0))
    assert count("a", comments(tmp_path)) == Count("a", 5, (2, 0, 0))


def test_code_blocks_of_pages_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "Who\n```\nwhat whose\n```\nreads\n")
    assert count("a", pages(tmp_path)) == Count("a", 2, (1, 0, 0))


@pytest.mark.parametrize("separator", [". ", ":\n", "\n\n", "\n* ", "\n1. ", " | "])
def test_only_a_sentence_over_the_longest_is_long(separator: str) -> None:
    half = " ".join(["word"] * LONGEST_SENTENCE)
    assert SENTENCES.found(f"{half}{separator}{half}") == 0
    assert SENTENCES.found(f"{half} [word](a/b/c) {separator}{half}") == 1
    assert SENTENCES.found(f"{half} {half}{separator}") == 1


def test_dialect_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(tmp_path) == 0
    write(tmp_path, "syncverify/a.py", DIALECT)
    assert command.main(tmp_path) == 1
    assert "over 5 pronoun words: name the thing" in capsys.readouterr().out
