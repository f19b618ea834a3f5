"""Decision records are short, numbered, complete and listed."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
MAX_LINES = 60
HEADINGS = ["Context", "Options", "Decision", "Consequences"]


def problems(name: str, text: str) -> list[str]:
    """List the rules that a record breaks."""
    found = []
    number = int(name.partition("-")[0])
    if not text.startswith(f"# {number}. "):
        found.append(f"the title does not start with '{number}. '")
    if "\nStatus: " not in text:
        found.append("the status is missing")
    if re.findall(r"^## (.+)$", text, re.MULTILINE) != HEADINGS:
        found.append(f"the headings are not {HEADINGS}")
    if len(text.splitlines()) > MAX_LINES:
        found.append(f"over {MAX_LINES} lines")
    return found


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_record_is_short_and_complete(record: Path) -> None:
    assert problems(record.name, record.read_text()) == []


def test_numbers_have_no_gap() -> None:
    numbers = [int(record.name.partition("-")[0]) for record in RECORDS]
    assert numbers == [*range(1, len(RECORDS) + 1)]


def test_index_lists_each_record_once() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\((.+?)\)", index(), re.MULTILINE)
    assert listed == [(record.name[:4], record.name) for record in RECORDS]


def index() -> str:
    """Return the text of the index."""
    return (FOLDER / "index.md").read_text()


def test_planted_mistakes_are_found() -> None:
    good = "# 7. A title\n\nStatus: accepted.\n\n" + "\n\n".join(
        f"## {heading}\n\nText." for heading in HEADINGS
    )
    assert problems("0007-a-title.md", good) == []
    assert len(problems("0008-a-title.md", good)) == 1
    assert len(problems("0007-a-title.md", good.replace("Status", "State"))) == 1
    assert len(problems("0007-a-title.md", good.replace("## Options", "Options"))) == 1
    assert len(problems("0007-a-title.md", good + "\n" * MAX_LINES)) == 1
