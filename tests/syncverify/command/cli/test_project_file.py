"""Defaults of a project, and a run that says little."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def project(*lines: str) -> None:
    Path("pyproject.toml").write_text("\n".join(["[tool.syncverify]", *lines]))


@pytest.mark.slow
def test_defaults_of_a_project_hold_where_no_option_is_given(call: Call) -> None:
    project("examples = 3", "ranks = 1", "seed = 7", "schedules = 'default'")
    outcome = call("run", "synchronizer", "--examples", "2")
    assert outcome.out.startswith(
        "verifying synchronizer on sim: 2 scenarios, up to 1 rank, seed 7\n"
    )
    assert outcome.code == 0


@pytest.mark.slow
def test_database_of_a_project_is_beside_its_file(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project("database = '.syncverify'", "examples = 1", "ranks = 1", "seed = 0")
    Path("inner").mkdir()
    monkeypatch.chdir("inner")
    subject = str(tmp_path / "cli_subjects.py") + ":FailsAtOnce"
    assert call("run", subject, "--no-database").code == 1
    assert not (tmp_path / ".syncverify").exists()
    outcome = call("run", subject, "--quiet")
    assert outcome.out.startswith(
        "VIOLATION: every_rank_finishes (raised_ValueError)\n"
    )
    assert outcome.out.count("VIOLATION") == 2
    assert (tmp_path / ".syncverify" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "example = 3",
            "unknown key 'example' in [tool.syncverify]; the nearest key is 'examples'",
        ),
        ("examples = '3'", "expected examples as an integer, got '3'"),
        ("seed = true", "expected seed as an integer, got True"),
        ("time-limit = 'long'", "expected time-limit as a number, got 'long'"),
        ("backend = 3", "expected backend as text, got 3"),
    ],
)
def test_wrong_default_is_named_with_its_file(
    call: Call, tmp_path: Path, line: str, complaint: str
) -> None:
    project(line)
    outcome = call("run", "synchronizer")
    assert outcome.code == 2
    assert outcome.complaint == f"{str(tmp_path / 'pyproject.toml')!r}: {complaint}"
