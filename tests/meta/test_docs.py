"""The reference pages say what the code does."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(
        re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    )
    docs = ROOT / "docs"
    assert listed == {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
