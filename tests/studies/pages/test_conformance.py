"""Stored columns of the conformance table are kept until they are outdated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studies.pages import conformance_columns
from studies.pages.conformance import missing, observed, with_newer
from studies.pages.conformance_columns import (
    CELLS,
    COLUMNS,
    PLAIN,
    Cell,
    Column,
    keep,
    observed_columns,
)
from syncverify.report.observed import EXPLAINED
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.replay_token import decode
from syncverify.search.observation import RATINGS, features_beyond
from syncverify.subjects.subject import resolve

EVERYTHING = [*map(str, OPTIONAL)]
FIRST, SECOND = COLUMNS[:2]
REPORT: dict[str, Any] = {
    "violations": [{"token": "sv2-y", "summary": "plain"}],
    "beyond": [
        {"feature": "mesh=unnamed", "word": "right", "scenarios": {"right": 3}},
        {
            "feature": "listed=twice",
            "word": "wrong",
            "scenarios": {"wrong": 1, "right": 2},
            "summary": "a sentence",
            "token": "sv2-x",
        },
    ],
}
WHOLE: dict[str, Any] = {
    "violations": [],
    "beyond": [
        {"feature": name, "word": "right", "scenarios": {"right": 3}}
        for name in EVERYTHING
    ],
}


@pytest.fixture
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = replace(CELLS, path=tmp_path / "cells.jsonl")
    monkeypatch.setattr(conformance_columns, "CELLS", file)


def test_stored_cells_are_ratings_and_explained_ones_have_a_scenario() -> None:
    cells = CELLS.read()
    assert {"right", "wrong"} <= {cell.word for cell in cells} <= {*RATINGS}
    explained = [cell for cell in cells if cell.word in EXPLAINED]
    assert explained == [cell for cell in cells if cell.token]
    assert all(decode(cell.token).scenario.parameters for cell in explained)


def test_our_synchronizer_explains_only_what_its_contract_leaves_out() -> None:
    ours = [each for each in observed_columns() if not each.column.package]
    assert ours
    left_out = features_beyond(resolve("synchronizer").capabilities)
    explained = {cell.feature for each in ours for cell in each.explained()}
    assert explained <= {*left_out}


@pytest.mark.usefixtures("_empty")
# Newer features are observed with the releases of the column: 99.0 is installed nowhere.
@pytest.mark.parametrize(
    ("report", "changes", "is_missing"),
    [
        (REPORT, {}, True),
        (REPORT, {"torch": "99.0"}, False),
        (WHOLE, {"torch": "2.9.1"}, True),
        (WHOLE, {"version": "0.0.9"}, True),
        (WHOLE, {"torch": "99.0"}, False),
    ],
)
def test_a_column_is_observed_again_with_a_newer_release(
    report: dict[str, Any],
    changes: dict[str, Any],
    is_missing: bool,  # noqa: FBT001  # a column of the table above
) -> None:
    keep(FIRST, (replace(cell, **changes) for cell in observed(FIRST, report)))
    assert (FIRST in missing([FIRST.name])) == is_missing


def test_the_cells_of_newer_features_are_added() -> None:
    known = observed(FIRST, REPORT)
    grown = with_newer(known, observed(FIRST, WHOLE))
    assert grown[:3] == known
    assert sorted(cell.feature for cell in grown[1:]) == sorted(EVERYTHING)


@pytest.mark.usefixtures("_empty")
def test_a_column_whose_package_is_missing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = Column("absent", "absent", "package-of-no-project")
    monkeypatch.setattr(conformance_columns, "COLUMNS", [absent])
    cells = observed(absent, REPORT)
    keep(absent, (replace(cell, version="1.0", torch="1.0") for cell in cells))
    (stored,) = observed_columns()
    assert not stored.is_outdated()


@pytest.mark.usefixtures("_empty")
def test_observations_come_back_as_they_were_stored() -> None:
    keep(FIRST, observed(FIRST, REPORT))
    (read,) = observed_columns()
    assert {*read.stored} == {*observed(FIRST, REPORT)}
    plain, twice = read.explained()
    assert (plain.feature, twice.feature) == (PLAIN, "listed=twice")
    assert isinstance(twice, Cell)
    assert (twice.wrong, twice.right, twice.token) == (1, 2, "sv2-x")
