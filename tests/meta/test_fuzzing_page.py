"""The page about fuzzing by hand: its snippets run, and find the mistake of its subject."""

import re
import sys
from ast import literal_eval
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest
from hypothesis import reproduce_failure

PAGE = Path(__file__).parents[2] / "docs" / "fuzzing-bucket-edges.md"
CODE = "\n".join(re.findall(r"```python\n(.+?)```", PAGE.read_text(), re.DOTALL))
MISTAKE = """
            if num_bytes > self.cap_bytes:
                return
"""
# Shrinking would play hundreds of scenarios.
QUICKLY = "max_examples=10, phases=settings.default.phases[:4]"
# Uneven shards end the loop of one rank before that of another.
DIAGNOSIS = r"^(gradient_equals_reference|collectives_match_across_ranks): "
EDGES, KEPT, TARGET = (
    "test_bucket_edges",
    "test_two_buckets_and_edges",
    "test_many_buckets",
)


@pytest.fixture
def module_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], ModuleType]]:
    """Import the code of the page, or a change of it, as a user's test module."""
    names: list[str] = []

    def make(name: str, code: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(code.replace("max_examples=100", QUICKLY))
        names.append(name)
        return import_module(name)

    monkeypatch.syspath_prepend(tmp_path)
    yield make
    for name in names:
        del sys.modules[name]


@pytest.mark.long
@pytest.mark.parametrize("test", [EDGES, KEPT, TARGET])
def test_each_test_of_the_page_finds_the_mistake(
    module_of: Callable[[str, str], ModuleType], test: str
) -> None:
    module = module_of("page_with_mistake", CODE)
    with pytest.raises(AssertionError, match=DIAGNOSIS) as caught:
        getattr(module, test)()
    assert "syncverify replay sv2-" in str(caught.value)
    if test == EDGES:
        notes = "\n".join(caught.value.__notes__)
        (blob,) = re.findall(r"@reproduce_failure\('[\d.]+', (b'.+')\)", notes)
        again = reproduce_failure(hypothesis.__version__, literal_eval(blob))
        with pytest.raises(AssertionError, match=DIAGNOSIS):
            again(getattr(module, test))()


@pytest.mark.slow
def test_page_is_right_without_the_mistake(
    module_of: Callable[[str, str], ModuleType],
) -> None:
    assert MISTAKE in CODE
    module = module_of("page_without_mistake", CODE.replace(MISTAKE, "\n"))
    getattr(module, KEPT)()
