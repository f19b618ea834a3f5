"""Marks in pages: facts are filled in, and sentences that are not true are found."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.releases import __main__ as command
from studies.releases import release_table
from studies.releases.facts import facts
from studies.releases.marks import filled, problems
from studies.releases.release_table import Release, ReleaseTable

TABLE = ReleaseTable(
    "2026-01-02",
    {
        "megatron-core": Release(
            "megatron-core", "0.19.2", "2026-01-01", "2026-01-02", ">=3.12"
        )
    },
)
FACTS = facts(TABLE)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a page whose sentences are true by TABLE, and which is the only one."""
    file = tmp_path / "page.md"
    file.write_text("The newest is <!-- newest megatron-core -->0.19.2<!-- / -->.\n")
    table = replace(release_table.TABLE, path=tmp_path / "releases.jsonl")
    monkeypatch.setattr(release_table, "TABLE", table)
    TABLE.write()
    monkeypatch.setattr(command, "PAGES", [file])
    monkeypatch.setattr(command, "ROOT", tmp_path)
    return file


def answer(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Let the index say that a version is the newest."""
    newest = {
        "megatron-core": Release(
            "megatron-core", version, "2026-02-01", "2026-02-02", ">=3.12"
        )
    }
    table = ReleaseTable("2026-02-02", newest)
    monkeypatch.setattr(command, "asked", lambda names: table)


def test_marks_are_filled_in() -> None:
    page = (
        "Newest on <!-- asked -->never<!-- / -->: <!-- newest megatron-core -->0.16.1"
        "<!-- / -->, for Python <!-- python megatron-core -->3.11<!-- / -->.\n"
    )
    assert re.sub("<!--.*?-->", "", filled(page, FACTS)) == (
        "Newest on 2026-01-02: 0.19.2, for Python 3.12.\n"
    )
    assert [*problems(filled(page, FACTS), FACTS)] == []


def test_a_release_that_was_looked_at_is_compared_and_not_filled_in() -> None:
    page = "None up to <!-- seen megatron-core -->0.16.1<!-- / -->.\n"
    assert filled(page, FACTS) == page
    (found,) = problems(page, FACTS)
    assert found.so == "the newest is 0.19.2: look again, or play it again"


def test_a_fact_that_is_not_known_is_found() -> None:
    (found,) = problems("On <!-- newest nothing -->1<!-- / -->.\n", FACTS)
    assert found.so == "no such fact is known"


@pytest.mark.parametrize(
    "sentence",
    [
        "megatron-core 0.16.1 is the newest release.",
        "| a pair | 0.16.1 | none on PyPI |",
        "The latest of them has the defect.",
        "There is no release with the repair.",
    ],
)
def test_a_sentence_about_releases_without_a_mark_is_found(sentence: str) -> None:
    marked = "The newest is <!-- newest megatron-core -->0.19.2<!-- / -->."
    (found,) = problems(f"{marked}\n{sentence}\n{marked}\n", FACTS)
    assert found.line == 2
    assert found.so.startswith("the sentence names no fact")


def test_a_release_that_is_called_neither_newest_nor_missing_needs_no_mark() -> None:
    page = "megatron-core 0.16.1 has it.\n\n```text\nthe newest\n```\n"
    assert [*problems(page, FACTS)] == []


def test_pages_say_what_is_stored() -> None:
    wrong = command.complaints(command.PAGES, facts(ReleaseTable.read()))
    # A release that was looked at is a matter of the day, and no fault of a change.
    filled_in = [line for line in wrong if ": says seen " not in line]
    assert filled_in == [], "run `make catalogue`"


def test_a_newer_release_is_reported_with_its_line(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "0.20.0")
    result = CliRunner().invoke(command.main, [])
    assert result.exit_code == 1
    assert "page.md:1: says newest megatron-core: 0.19.2; it is 0.20.0" in result.output


def test_a_newer_release_is_stored_and_filled_in(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "0.20.0")
    result = CliRunner().invoke(command.main, ["--update"])
    assert result.exit_code == 0, result.output
    assert "0.20.0" in page.read_text()
    assert ReleaseTable.read().newest["megatron-core"].version == "0.20.0"


def test_an_index_that_does_not_answer_is_bad_usage(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(names: list[str]) -> ReleaseTable:
        raise TimeoutError("no route")

    monkeypatch.setattr(command, "asked", silent)
    result = CliRunner().invoke(command.main, [])
    assert result.exit_code == 2
    assert "the package index does not answer: no route" in result.output
