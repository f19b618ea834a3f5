"""Columns of the conformance table, the power of searches, and soaks: what is stored, until it is outdated."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from studies.pages import conformance_columns, soak
from studies.pages.conformance import missing, observed
from studies.pages.conformance_columns import CELLS, COLUMNS, keep, observed_columns
from studies.pages.power import CONTRACTS, VALUES, drawn_search, met
from studies.pages.soak import Campaign, campaigns, sums
from studies.searches import SearchRow
from syncverify.command.verification.reported_search import run_search
from syncverify.playing.sim import SimBackend
from syncverify.progress import SilentProgress
from syncverify.report.observed import EXPLAINED
from syncverify.scenario.feature_table import OPTIONAL
from syncverify.scenario.replay_token import decode
from syncverify.scenario.settings import Settings
from syncverify.search.observation import RATINGS, features_beyond
from syncverify.search.search import search
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_searches import Failing
from tests.syncverify.search.search_subjects import Naive

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
    explained = {cell.features for each in ours for cell in each.explained()}
    assert explained <= {(feature,) for feature in left_out}


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


@pytest.mark.usefixtures("_empty")
def test_features_of_a_topic_with_one_result_are_one_row() -> None:
    keep(FIRST, observed(FIRST, WHOLE))
    (read,) = observed_columns()
    assert [*read.cells] == EVERYTHING
    topics = {name.partition("=")[0] for name in EVERYTHING}
    assert len(read.stored) == len(topics)
    seen = observed(FIRST, WHOLE)
    keep(FIRST, [replace(seen[0], right=2), *seen[1:]])
    (read,) = observed_columns()
    assert read.cells[EVERYTHING[0]].features == (EVERYTHING[0],)
    assert len(read.stored) == len(topics) + 1


ROWS = VALUES.read()


def test_each_value_is_met_in_2000_examples() -> None:
    assert {row.contract for row in ROWS} == {*CONTRACTS}
    assert min(row.power(2000) for row in ROWS) >= 0.95


@pytest.mark.long
def test_a_drawn_search_lacks_the_values_that_a_played_one_lacks() -> None:
    subject, settings = resolve(Naive), Settings(ranks=4, examples=20, seed=3)
    backend: Any = Failing("fake", None)  # type: ignore[arg-type]
    played = search(subject, backend, settings, SilentProgress())
    before, after = drawn_search(subject.capabilities, 20, 3)
    assert after == played.coverage.missing_values()
    assert len(before) > len(after)


def lacks(contract: str) -> Iterator[float]:
    """Yield how far the searches are from the model, in standard deviations."""
    for row in ROWS:
        if row.contract != contract or "=" not in row.value or not row.missing:
            continue
        share = 1 - met(row.count / row.samples, 200)
        error = math.sqrt(row.searches * share * (1 - share) + 1)
        yield (row.missing - row.searches * share) / error


@pytest.mark.parametrize("contract", CONTRACTS)
def test_searches_lack_values_as_often_as_the_model_says(contract: str) -> None:
    far = [*lacks(contract)]
    assert len(far) > 5
    assert max(map(abs, far)) < 5


ROW = SearchRow(
    subject="ddp", backend="sim", date="2026-01-02", examples=250, seconds=1.0
)


def test_a_soak_goes_on_where_it_was_cut_off_for_each_backend() -> None:
    (left,) = campaigns({"ddp": 1250}, [ROW], "sim")
    assert left == Campaign("ddp", "sim", 1, 1000)
    assert [*campaigns({"ddp": 250}, [ROW], "sim")] == []
    (left,) = campaigns({"ddp": 1000}, [ROW], "fake")
    assert left == Campaign("ddp", "fake", 0, 1000)
    both = sums([ROW, replace(ROW, backend="fake")])
    assert [row[:2] for row in both] == [("ddp", "sim"), ("ddp", "fake")]


@pytest.mark.slow
def test_the_next_soak_plays_scenarios_and_takes_no_result_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(ranks=1, examples=1, seed=0)
    report = run_search(resolve("ddp"), SimBackend(), settings)
    file = tmp_path / "campaign-0.shards"
    file.touch()
    monkeypatch.setattr(soak, "play", lambda *_: replace(report, campaign=file))
    result = CliRunner().invoke(soak.main, [f"{tmp_path / 'soak.jsonl'}", "ddp=1"])
    assert result.output == "ddp on sim: 1 scenario, 0 alarms\n"
    assert not file.exists()
