"""Prose that names a note names one that is there."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# torch's own note, in its input_buffer.cpp.
_OF_OTHERS = {"Autograd Producer-Consumer Stream Syncs"}
_NOTE = re.compile(r"^\s*(?:# )?Note \[([^]]+)\]\s*$|Note \[([^]]+)\]", re.MULTILINE)


def _missing(texts: list[str]) -> set[str]:
    """Return the names of notes that some text mentions and none has as a headline."""
    headlines, mentioned = set[str](), set[str]()
    for match in (match for text in texts for match in _NOTE.finditer(text)):
        headline, mention = match.groups()
        if headline:
            headlines.add(headline)
        else:
            mentioned.add(re.sub(r"\s*\n\s*(?:# )?", " ", mention))
    return mentioned - headlines - _OF_OTHERS


def _texts() -> Iterator[str]:
    for folder in (
        "syncverify",
        "synchronizer",
        "strategies",
        "studies",
        "docs",
        "tests",
    ):
        for pattern in ("*.py", "*.md"):
            for file in sorted((ROOT / folder).rglob(pattern)):
                if file != Path(__file__):
                    yield file.read_text()
    yield (ROOT / "ARCHITECTURE.md").read_text()
    yield (ROOT / "CONTRIBUTING.md").read_text()


def test_a_note_without_a_headline_is_found() -> None:
    text = """Note [Here]\n~~~\nAs Note [Here] says; see Note [Not\n    here]."""
    assert _missing([text]) == {"Not here"}


def test_each_note_that_is_mentioned_is_there() -> None:
    assert _missing([*_texts()]) == set()
