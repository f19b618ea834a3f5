"""The reference pages agree with the code."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(
        re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    )
    docs = ROOT / "docs"
    assert listed == {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}


def test_page_about_modules_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "real-modules.md").read_text()
    (block,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    module = ModuleType("page_about_modules")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(block, vars(module))  # the example has its own asserts
    assert not module.run.fault
