"""docs/training-programs.md lists every word, its meaning and its expected gradient.

It lists the values of plain training steps as well.
"""

from pathlib import Path

import pytest

from syncverify.scenario import vocabulary
from syncverify.scenario.feature_table import OPTIONAL_FEATURES
from syncverify.scenario.plain_features import PLAIN_VALUES

PAGE = Path(__file__).parents[2] / "docs" / "training-programs.md"
TABLES = {
    "event": vocabulary.EVENTS,
    "used": vocabulary.USED,
    "readiness": vocabulary.READINESS,
    "launch": vocabulary.LAUNCHES,
    "synchronizers": vocabulary.SYNCHRONIZERS,
}


@pytest.mark.parametrize("topic", TABLES)
def test_page_lists_every_word(topic: str) -> None:
    rows = [
        f"| `{word}` | {meaning} | {OPTIONAL_FEATURES[topic].get(word, 'right').replace('_', ' ')} |"
        for word, meaning in TABLES[topic].items()
    ]
    assert "\n".join(rows) in PAGE.read_text()


@pytest.mark.parametrize("topic", vocabulary.VARIANTS)
def test_page_lists_every_variant(topic: str) -> None:
    rows = [
        f"| `{topic}` | `{variant}` | {meaning} |"
        for variant, meaning in vocabulary.VARIANTS[topic].items()
    ]
    assert "\n".join(rows) in PAGE.read_text()


@pytest.mark.parametrize("topic", PLAIN_VALUES)
def test_page_lists_every_value_of_plain_steps(topic: str) -> None:
    rows = [
        row for row in PAGE.read_text().splitlines() if row.startswith(f"| `{topic}` |")
    ]
    assert len(rows) == 1
    assert [name for name in PLAIN_VALUES[topic] if f"`{name}`" not in rows[0]] == []
