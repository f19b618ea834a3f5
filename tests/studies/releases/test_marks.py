"""Marks in pages about releases, and the newest release on a page of the index."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from studies.releases import __main__ as command
from studies.releases import package_index, release_table
from studies.releases.facts import facts
from studies.releases.marks import filled, problems
from studies.releases.release_table import Release, ReleaseTable
from studies.releases.requirements import peers, requirements

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


def test_a_release_that_was_looked_at_is_compared_and_not_filled_in() -> None:
    page = "None up to <!-- seen megatron-core -->0.16.1<!-- / -->.\n"
    assert filled(page, FACTS) == page
    (found,) = problems(page, FACTS)
    assert found.so == "the newest is 0.19.2: look again, or play it again"


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


def test_pages_say_what_is_stored() -> None:
    wrong = command.complaints(command.PAGES, facts(ReleaseTable.read()))
    # A release that was looked at is a matter of the day, and no fault of a change.
    filled_in = [line for line in wrong if ": says seen " not in line]
    assert filled_in == [], "run `make catalogue`"


def test_a_newer_release_is_stored_and_filled_in(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Release("megatron-core", "0.20.0", "2026-02-01", "2026-02-02", ">=3.12")
    table = ReleaseTable("2026-02-02", {"megatron-core": newer})
    monkeypatch.setattr(command, "asked", lambda names: table)
    result = CliRunner().invoke(command.main, ["--update"])
    assert result.exit_code == 0, result.output
    assert "0.20.0" in page.read_text()
    assert ReleaseTable.read().newest["megatron-core"].version == "0.20.0"


def file(name: str, **more: Any) -> dict[str, Any]:
    return {"filename": name, "upload-time": "2026-03-01T10:00:00Z", **more}


def test_the_newest_release_may_need_a_newer_python_and_is_not_withdrawn() -> None:
    """Pre-releases and installers do not count either."""
    files = [
        file("peer-0.9.0.tar.gz"),
        file("peer-0.10.0-py3-none-any.whl", **{"requires-python": ">=3.99"}),
        file("peer-0.12.0-py3-none-any.whl", yanked="broken"),
        file("peer-0.11.0rc1-py3-none-any.whl"),
        file("peer-0.13.0.win32.exe"),
    ]
    found = package_index.newest("peer", {"files": files}, "2026-03-02")
    assert found == Release("peer", "0.10.0", "2026-03-01", "2026-03-02", ">=3.99")


def test_a_release_for_another_python_is_left_out_and_named() -> None:
    releases = dict.fromkeys(
        ["torch", *peers()], Release("any", "1.0", "2026-01-01", "2026-01-02")
    )
    releases["megatron-core"] = Release(
        "megatron-core", "2.0", "2026-01-01", "2026-01-02", ">=3.12"
    )
    table = ReleaseTable("2026-01-02", releases)
    taken, left = requirements(table, "3.11")
    assert "megatron-core==2.0" not in taken
    assert "torch==1.0" in taken
    (line,) = left
    assert line.startswith(
        "megatron-core 2.0 is left out: it needs Python >=3.12, and this is 3.11"
    )
    taken, left = requirements(table, "3.12")
    assert "megatron-core==2.0" in taken
    assert left == []


def test_each_peer_is_in_the_table_of_releases() -> None:
    assert {"torch", *peers()} <= {*ReleaseTable.read().newest}
