"""Each page is in the navigation, and blocks of pages run as they are."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from syncverify import verify
from syncverify.playing.program.modules import module_parameters
from syncverify.playing.program.modules.layers import provide_layers
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import FEATURES
from syncverify.scenario.specs import MeshSpec
from tests.programs import forget_layers

ROOT = Path(__file__).parents[2]
ADAPTERS = (ROOT / "docs" / "adapters.md").read_text()
BACKENDS = {
    "HookReducerSubject": "sim",
    "DataParallelSubject": "sim",
    "ShardedOptimizerSubject": "sim",
    "FrameworkSubject": "gloo",
}


def test_every_page_is_in_the_navigation() -> None:
    listed = set(
        re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    )
    docs = ROOT / "docs"
    assert listed == {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.+?)```", page, re.DOTALL)


def test_block_of_the_page_about_modules_provides_a_layer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (block,) = blocks((ROOT / "docs" / "real-modules.md").read_text())
    (tmp_path / "page_layers.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    provide_layers(Capabilities(layers=("page_layers:Regression",)))
    try:
        first, *_ = module_parameters("Regression", MeshSpec((1,), ("dp",)))
    finally:
        forget_layers()
    assert first.global_shape == (3,)


def test_features_that_the_page_about_adapters_names_exist() -> None:
    named = {*re.findall(r'"(\w+)=(\w+)"', ADAPTERS)}
    assert named
    assert named - {*FEATURES} == set()


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The blocks of the page as one module, which lies outside of the repository."""
    file = tmp_path_factory.mktemp("page") / "adapters_page.py"
    file.write_text("\n\n".join(blocks(ADAPTERS)))
    spec = importlib.util.spec_from_file_location("adapters_page", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.long
@pytest.mark.parametrize(("name", "backend"), BACKENDS.items())
def test_recipe_holds_all_properties(
    adapters: ModuleType, name: str, backend: str
) -> None:
    report = verify(getattr(adapters, name), backend=backend, examples=10, seed=1)
    assert report.violations == ()
