"""Catalogues that tools and pages write list what the code has."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from studies.bank_rows import BANK
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.judgement import Property
from syncverify.judge.properties.registry import OF_TRAININGS
from syncverify.scenario.feature_table import FEATURES, OPTIONAL
from syncverify.subjects.bugbank.catalogue import entries
from tests.pages.feature_catalogue import rows
from tests.pages.property_catalogue import parts
from tests.quality.planted.graph_words import NOT_SHOWN

PAGE = Path(__file__).parents[2] / "docs" / "training-programs.md"


def test_every_entry_of_the_bank_has_figures() -> None:
    measured = [row.id for row in BANK.read()]
    listed = sorted(entry.name for entry in entries())
    assert measured == listed, (
        "`python -m studies.pages.bank_figures` plays what is new"
    )


@pytest.mark.parametrize(
    "entry", [*ALL_PROPERTIES, *OF_TRAININGS], ids=lambda entry: entry.name
)
def test_the_docstring_of_a_property_says_what_is_caught_and_what_is_left_open(
    entry: Property,
) -> None:
    _, caught, limits = parts(entry)
    assert caught.endswith(".")
    assert limits.endswith(".")


def test_the_page_about_programs_lists_every_value_of_plain_steps() -> None:
    plain: dict[str, list[str]] = {}
    for feature in FEATURES:
        if feature not in OPTIONAL:
            plain.setdefault(feature.topic, []).append(feature.value)
    lines = PAGE.read_text().splitlines()
    assert len(plain) > 5
    for topic, values in plain.items():
        # The first row: another table has the variants.
        row = next(line for line in lines if line.startswith(f"| `{topic}` |"))
        assert [name for name in values if f"`{name}`" not in row] == []


def test_every_feature_stands_in_the_catalogue_once() -> None:
    listed = [row.feature for row in rows()]
    assert sorted([*listed, *NOT_SHOWN]) == sorted(map(str, OPTIONAL))


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", sorted({row.test.partition("::")[0] for row in rows()})
)
def test_every_test_of_the_catalogue_is_there(file: str) -> None:
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
