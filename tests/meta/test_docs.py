"""The reference pages say what the code does."""

import re
from pathlib import Path

from syncverify.properties import ALL_PROPERTIES

ROOT = Path(__file__).parents[2]


def test_properties_page_states_every_property() -> None:
    page = (ROOT / "docs" / "properties.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (yes|no) \|$", page, flags=re.MULTILINE)
    assert rows == [
        (entry.name, entry.statement, "yes" if entry.needs_data else "no")
        for entry in ALL_PROPERTIES
    ]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(
        re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    )
    docs = ROOT / "docs"
    assert listed == {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
