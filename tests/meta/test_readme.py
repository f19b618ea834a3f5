"""The README shows real output."""

import re
from pathlib import Path

import pytest

from syncverify import PropertyViolation, verify
from syncverify.judge.properties import ALL_PROPERTIES

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.long
def test_readme_shows_the_real_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # subjects are found from there
    shown = re.search(r"```text\n(.*?)\n```", README, flags=re.DOTALL)
    assert shown is not None
    with pytest.raises(PropertyViolation) as raised:
        verify("examples.reduces_too_often:ReducesTooOften", examples=20, seed=0)
    assert shown.group(1) in str(raised.value)


def test_readme_lists_every_property() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", README, flags=re.MULTILINE)
    assert [entry.name for entry in ALL_PROPERTIES] == listed


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150
