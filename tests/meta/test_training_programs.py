"""docs/training-programs.md lists every word, its meaning and its expected gradient."""

from pathlib import Path

import pytest

from syncverify.scenario import vocabulary
from syncverify.scenario.features import OPTIONAL_FEATURES

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
        f"| `{word}` | {meaning} | {OPTIONAL_FEATURES[topic].get(word, 'right').replace('_', ' ')} |"
        for word, meaning in TABLES[topic].items()
    ]
    assert "\n".join(rows) in PAGE.read_text()
