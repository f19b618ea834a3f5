"""docs/training-programs.md lists every word, what it means and what is owed."""

from pathlib import Path

import pytest

from syncverify import vocabulary
from syncverify.features import BEYOND

PAGE = Path(__file__).parents[2] / "docs" / "training-programs.md"
TABLES = {
    "event": vocabulary.EVENTS,
    "used": vocabulary.USED,
    "readiness": vocabulary.READINESS,
    "launch": vocabulary.LAUNCHES,
}


@pytest.mark.parametrize("topic", TABLES)
def test_page_lists_every_word(topic: str) -> None:
    rows = [
        f"| `{word}` | {meaning} | {BEYOND[topic].get(word, 'right').replace('_', ' ')} |"
        for word, meaning in TABLES[topic].items()
    ]
    assert "\n".join(rows) in PAGE.read_text()
