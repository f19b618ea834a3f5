"""Files and notes that prose names exist."""

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
# torch's own note, in its input_buffer.cpp.
OF_OTHERS = {"Autograd Producer-Consumer Stream Syncs"}
NOTE = re.compile(r"^\s*(?:# )?Note \[([^]]+)\]\s*$|Note \[([^]]+)\]", re.MULTILINE)


def texts(*folders: str) -> Iterator[tuple[Path, str]]:
    """Yield the modules and pages of folders with their texts."""
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*")):
            is_ours = not any(map(file.is_relative_to, LINKS))
            if (
                is_ours
                and file.suffix in {".py", ".md", ".toml"}
                and file != Path(__file__)
            ):
                yield file.relative_to(ROOT), file.read_text("utf-8")


def test_paths_in_sources_contracts_and_pages_exist() -> None:
    prose = [
        (file, text)
        for file, text in texts(*PACKAGES, "docs")
        if file.suffix != ".toml" or file.parent.name == "contracts"
    ]
    found = {(file, path) for file, text in prose for path in PATH.findall(text)}
    assert len(found) > 100
    assert [each for each in found if not (ROOT / each[1]).exists()] == []


def missing_notes(texts: list[str]) -> set[str]:
    """Return the names of notes that some text mentions and none has as a headline."""
    headlines, mentioned = set[str](), set[str]()
    for match in (match for text in texts for match in NOTE.finditer(text)):
        headline, mention = match.groups()
        if headline:
            headlines.add(headline)
        else:
            mentioned.add(re.sub(r"\s*\n\s*(?:# )?", " ", mention))
    return mentioned - headlines - OF_OTHERS


def test_each_note_that_is_mentioned_is_there() -> None:
    pages = [
        (ROOT / f"{name}.md").read_text() for name in ("ARCHITECTURE", "CONTRIBUTING")
    ]
    sources = [text for _, text in texts(*PACKAGES, "docs", "tests")]
    assert missing_notes([*pages, *sources]) == set()


def test_planted_mistakes_are_found() -> None:
    text = "`RARE` in syncverify/scenario/gone.py; see studies/results/NAME.json"
    assert PATH.findall(text) == ["syncverify/scenario/gone.py"]
    text = "Note [Here]\n~~~\nAs Note [Here] says; see Note [Not\n    here]."
    assert missing_notes([text]) == {"Not here"}
