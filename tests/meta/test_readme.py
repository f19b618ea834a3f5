"""The README shows real output and real observations."""

import re
from pathlib import Path

import pytest

from pages.front_table import front_table, readme
from syncverify import PropertyViolation, verify
from syncverify.judge.properties import ALL_PROPERTIES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.long
def test_readme_shows_the_real_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # subjects are found from there
    shown = re.search(r"```text\n(.*?)\n```", README, flags=re.DOTALL)
    assert shown is not None
    with pytest.raises(PropertyViolation) as raised:
        verify("examples.reduces_too_often:ReducesTooOften", examples=20, seed=0)
    assert shown.group(1) in str(raised.value)


def test_the_page_of_properties_lists_each() -> None:
    page = (ROOT / "docs" / "properties.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert [entry.name for entry in ALL_PROPERTIES] == listed


def test_readme_shows_what_was_observed() -> None:
    assert readme() == README, "run `make catalogue`"
    assert front_table() in README


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150
