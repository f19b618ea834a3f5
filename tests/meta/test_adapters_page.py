"""The recipes of docs/adapters.md run as they are."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from syncverify import verify
from syncverify.scenario.feature_table import FEATURES

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text()
BLOCKS = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
BACKENDS = {
    "HookReducerSubject": "sim",
    "DataParallelSubject": "sim",
    "ShardedOptimizerSubject": "sim",
    "FrameworkSubject": "gloo",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The blocks of the page as one module, which lies outside of the repository."""
    file = tmp_path_factory.mktemp("page") / "adapters_page.py"
    file.write_text("\n\n".join(BLOCKS))
    spec = importlib.util.spec_from_file_location("adapters_page", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_named_features_exist() -> None:
    named = {*re.findall(r'"(\w+)=(\w+)"', PAGE)}
    assert named
    assert named - {*FEATURES} == set()


@pytest.mark.long
@pytest.mark.parametrize(("name", "backend"), BACKENDS.items())
def test_recipe_holds_all_properties(page: ModuleType, name: str, backend: str) -> None:
    report = verify(getattr(page, name), backend=backend, examples=10, seed=1)
    assert report.violations == ()
