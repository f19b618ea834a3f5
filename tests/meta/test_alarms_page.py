"""A soak goes on where it was cut off, and counts each backend apart."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.pages import soak
from studies.pages.soak import Campaign, campaigns, sums
from studies.searches import SearchRow
from syncverify.backends.sim import SimBackend
from syncverify.settings import Settings
from syncverify.subjects.subject import resolve
from syncverify.verification.reported_search import run_search

ROW = SearchRow(
    subject="ddp", backend="sim", date="2026-01-02", examples=250, seconds=1.0
)


def test_a_soak_goes_on_where_it_was_cut_off() -> None:
    (left,) = campaigns({"ddp": 1250}, [ROW], "sim")
    assert left == Campaign("ddp", "sim", 1, 1000)
    assert [*campaigns({"ddp": 250}, [ROW], "sim")] == []


def test_a_soak_of_another_backend_starts_anew_and_is_summed_apart() -> None:
    left = [*campaigns({"ddp": 1000}, [ROW], "fake")]
    assert left == [Campaign("ddp", "fake", 0, 1000)]
    on_fake = replace(ROW, backend="fake")
    assert [row[:2] for row in sums([ROW, on_fake])] == [
        ("ddp", "sim"),
        ("ddp", "fake"),
    ]


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
