"""Every feature of scenarios is needed for a defect, and the page says which."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from studies.pages.feature_catalogue import rows
from syncverify.scenario.feature_table import OPTIONAL
from tests.quality.planted.graph_words import NOT_SHOWN

EVERYTHING = {*map(str, OPTIONAL)}


def test_every_feature_stands_in_it_once() -> None:
    listed = [row.feature for row in rows()]
    assert sorted([*listed, *NOT_SHOWN]) == sorted(EVERYTHING)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", sorted({row.test.partition("::")[0] for row in rows()})
)
def test_every_test_is_there(file: str) -> None:
    module = importlib.import_module(f"tests.quality.{file.removesuffix('.py')}")
    named = [row.test.partition("::") for row in rows()]
    tests = [test for own, _, test in named if own == file]
    assert tests
    for test in tests:
        name, _, parameter = test.removesuffix("]").partition("[")
        assert parameter in ids_of(getattr(module, name)), test


def ids_of(test: Any) -> Iterator[str]:
    """Yield the parameter sets of a test, as pytest names them."""
    for mark in test.pytestmark:
        if mark.name == "parametrize":
            yield from (getattr(each, "id", each) for each in mark.args[1])
