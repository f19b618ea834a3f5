"""The reference pages say what the code does."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

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
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_page_about_modules_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "real-modules.md").read_text()
    (block,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    module = ModuleType("page_about_modules")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(block, vars(module))  # it asserts what it says
    assert not module.run.fault
