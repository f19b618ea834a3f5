"""The conformance pages list each feature, and stored columns are kept until they are outdated."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studies.pages import conformance_columns
from studies.pages.conformance import missing, observed, with_newer
from studies.pages.conformance_columns import COLUMNS, Cell, Column, observed_columns
from studies.pages.conformance_page import PAGE, SCENARIOS_PAGE
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.token import decode
from syncverify.search.observation import RATINGS, features_beyond
from syncverify.subjects.subject import resolve

EVERYTHING = [*map(str, OPTIONAL)]


def test_every_link_of_a_cell_leads_to_a_heading() -> None:
    headings = re.findall(r"^### (.+)$", SCENARIOS_PAGE.file.read_text(), re.MULTILINE)
    anchors = {
        "".join(c for c in each.lower() if c.isalnum() or c in "_- ").replace(" ", "-")
        for each in headings
    }
    links = re.findall(r"reference/conformance\.md#([^)]+)\)", PAGE.file.read_text())
    assert sorted(links) == sorted(anchors)


def test_every_token_decodes_to_a_scenario() -> None:
    tokens = re.findall(r"syncverify replay (\S+) ", SCENARIOS_PAGE.file.read_text())
    assert tokens
    for token in tokens:
        assert decode(token).scenario.parameters


def test_every_column_holds_each_feature_once() -> None:
    columns = observed_columns()
    assert columns
    for each in columns:
        assert [cell.feature for cell in each.cells] == EVERYTHING, each.column.name


def test_every_cell_is_a_rating_and_an_explained_one_has_a_scenario() -> None:
    cells = [cell for each in observed_columns() for cell in each.cells]
    assert {"right", "wrong"} <= {cell.word for cell in cells} <= {*RATINGS}
    explained = [cell for each in observed_columns() for cell in each.explained()]
    assert {bool(cell.token and cell.summary) for cell in explained} == {True}


def test_our_synchronizer_explains_only_what_its_contract_leaves_out() -> None:
    ours = [each for each in observed_columns() if not each.column.package]
    assert ours
    left_out = features_beyond(resolve("synchronizer").capabilities)
    for each in ours:
        assert {cell.feature for cell in each.explained()} <= {*left_out}
        assert not each.plain


def test_a_column_is_observed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance_columns, "RESULTS", tmp_path)
    first, second, *_ = COLUMNS
    names = [first.name, second.name]
    observed(first, WHOLE, 3).write()
    assert [*missing(names)] == [second]


@pytest.mark.parametrize(("torch", "is_missing"), [("", True), ("99.0", False)])
def test_a_newer_feature_is_observed_with_the_releases_of_the_column(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    torch: str,
    is_missing: bool,  # noqa: FBT001  # a column of the table above
) -> None:
    monkeypatch.setattr(conformance_columns, "RESULTS", tmp_path)
    column = COLUMNS[0]
    first = observed(column, REPORT, 3)
    replace(first, torch=torch or first.torch).write()
    assert (column in missing([column.name])) == is_missing


def test_the_cells_of_newer_features_are_added() -> None:
    known = observed(COLUMNS[0], REPORT, 3)
    grown = with_newer(known, observed(COLUMNS[0], WHOLE, 3))
    assert grown.cells[:2] == known.cells
    assert sorted(cell.feature for cell in grown.cells) == sorted(EVERYTHING)


@pytest.mark.parametrize(
    ("changes", "is_missing"),
    [
        ({"torch": "2.9.1"}, True),
        ({"version": "0.0.9"}, True),
        ({"torch": "99.0"}, False),  # installed here is an older one
    ],
)
def test_a_column_is_observed_again_with_a_newer_release(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    is_missing: bool,  # noqa: FBT001  # a column of the table above
) -> None:
    monkeypatch.setattr(conformance_columns, "RESULTS", tmp_path)
    first = COLUMNS[0]
    replace(observed(first, WHOLE, 3), **changes).write()
    assert (first in missing([first.name])) == is_missing


def test_a_column_whose_package_is_missing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance_columns, "RESULTS", tmp_path)
    absent = Column("absent", "absent", "package-of-no-project")
    monkeypatch.setattr(conformance_columns, "COLUMNS", [absent])
    replace(observed(absent, REPORT, 3), version="1.0", torch="1.0").write()
    (stored,) = observed_columns()
    assert not stored.is_outdated()


def test_observations_come_back_as_they_were_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance_columns, "RESULTS", tmp_path)
    stored = observed(COLUMNS[0], REPORT, 3)
    stored.write()
    (read,) = observed_columns()
    known = {cell.feature for cell in stored.cells}
    newer = {cell.word for cell in read.cells if cell.feature not in known}
    assert newer == {"not tried"}
    assert {cell.feature for cell in read.cells} == {*EVERYTHING}
    cells = [cell for cell in read.cells if cell.feature in known]
    assert replace(read, cells=stored.cells) == stored
    assert sorted(cells, key=str) == sorted(stored.cells, key=str)
    assert stored.explained() == [
        Cell(
            "listed=twice",
            "wrong",
            {"wrong": 1, "right": 2},
            "",
            "it is at peer/sync.py:3",
            "sv2-x",
        )
    ]


REPORT: dict[str, Any] = {
    "seed": 7,
    "violations": [{"token": "sv2-y", "summary": "plain"}],
    "beyond": [
        {"feature": "mesh=unnamed", "word": "right", "scenarios": {"right": 3}},
        {
            "feature": "listed=twice",
            "word": "wrong",
            "scenarios": {"wrong": 1, "right": 2},
            "summary": "it is at /home/me/.venv/lib/site-packages/peer/sync.py:3",
            "token": "sv2-x",
            "diagnosis": "long",
        },
    ],
}

WHOLE: dict[str, Any] = {
    **REPORT,
    "beyond": [
        {"feature": name, "word": "right", "scenarios": {"right": 3}}
        for name in EVERYTHING
    ],
}
