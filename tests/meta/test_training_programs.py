"""docs/training-programs.md lists the values of plain training steps."""

from pathlib import Path

import pytest

from syncverify.scenario.feature_table import FEATURES, OPTIONAL

PAGE = Path(__file__).parents[2] / "docs" / "training-programs.md"


@pytest.mark.parametrize(
    "topic", [*dict.fromkeys(f.topic for f in FEATURES if f not in OPTIONAL)]
)
def test_page_lists_every_value_of_plain_steps(topic: str) -> None:
    rows = [
        row for row in PAGE.read_text().splitlines() if row.startswith(f"| `{topic}` |")
    ]
    assert rows  # another table has the variants
    plain = [f.value for f in FEATURES if f.topic == topic and f not in OPTIONAL]
    assert [name for name in plain if f"`{name}`" not in rows[0]] == []
