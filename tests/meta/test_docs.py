"""Each page is in the navigation, and the block of docs/real-modules.md provides its layer."""

import re
from pathlib import Path

import pytest

from syncverify.program.modules import module_parameters
from syncverify.program.modules.layers import forget_layers, provide_layers
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.specs import MeshSpec

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(
        re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    )
    docs = ROOT / "docs"
    assert listed == {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}


def test_block_of_the_page_about_modules_provides_a_layer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "real-modules.md").read_text()
    (block,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    (tmp_path / "page_layers.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    provide_layers(Capabilities(layers=("page_layers:Regression",)))
    try:
        first, *_ = module_parameters("Regression", MeshSpec((1,), ("dp",)))
    finally:
        forget_layers()
    assert first.global_shape == (3,)
