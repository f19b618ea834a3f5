"""Paths of files that prose names exist."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Links to two of the packages.
LINKS = (ROOT / "syncverify" / "synchronizer", ROOT / "syncverify" / "strategies")
PACKAGES = ("syncverify", "synchronizer", "strategies", "studies")
# A name in capitals stands for any.
PATH = re.compile(
    r"(?<![\w./{}-])(?:syncverify|synchronizer|strategies|studies|tests|docs|examples)"
    r"/(?!\S*[A-Z]{4}\.)[\w./-]*\w\.(?:py|md|toml|json|csv|cpp|html)\b"
)


def sources() -> Iterator[tuple[Path, str]]:
    """Yield the sources of the packages with their texts."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if not file.is_relative_to(LINKS[0]) and not file.is_relative_to(LINKS[1]):
                yield file.relative_to(ROOT), file.read_text("utf-8")


def test_paths_in_sources_contracts_and_pages_exist() -> None:
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "syncverify/subjects/contracts").iterdir(),
    ]
    texts = [*sources(), *((page, page.read_text("utf-8")) for page in pages)]
    found = {(file, path) for file, text in texts for path in PATH.findall(text)}
    assert len(found) > 100
    assert [each for each in found if not (ROOT / each[1]).exists()] == []


def test_planted_path_is_found_and_a_placeholder_is_not() -> None:
    text = "`RARE` in syncverify/scenario/gone.py; see studies/results/NAME.json"
    assert PATH.findall(text) == ["syncverify/scenario/gone.py"]
