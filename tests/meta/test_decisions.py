"""Decision records are numbered and listed."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))


def test_numbers_have_no_gap() -> None:
    numbers = [int(record.name.partition("-")[0]) for record in RECORDS]
    assert numbers == [*range(1, len(RECORDS) + 1)]


def test_index_lists_each_record_once() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\((.+?)\)", index(), re.MULTILINE)
    assert listed == [(record.name[:4], record.name) for record in RECORDS]


def index() -> str:
    """Return the text of the index."""
    return (FOLDER / "index.md").read_text()
