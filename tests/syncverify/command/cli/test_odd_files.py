"""Files of anybody: defaults of a project, and one clear line and exit code 2 for what is odd."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
REPORT = {
    "subject": "cli_subjects:Right",
    "backend": "sim",
    "contract_choice": "",
    "violations": [{"token": "sv2-"}],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", ["cli_subjects:Right"]),
        ("backend", "nothing"),
        ("contract_choice", 7),
    ],
)
def test_a_report_with_a_field_of_another_kind_is_refused(
    call: Call, tmp_path: Path, field: str, value: Any
) -> None:
    (tmp_path / "report.json").write_text(json.dumps({**REPORT, field: value}))
    outcome = call("replay", "report.json#1")
    assert outcome.code == 2
    assert outcome.complaint == (
        "'report.json#1' is no report of `syncverify run --json`: its "
        f"{field} is {value!r}"
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_contract_in_a_pipe_is_refused(call: Call, tmp_path: Path) -> None:
    """A read of a pipe may never end."""
    os.mkfifo(tmp_path / "contract.toml")
    outcome = call("run", "cli_subjects:Right", "--contract", "contract.toml")
    assert outcome.code == 2
    assert outcome.complaint == "the contract 'contract.toml' is no regular file"


def test_a_deleted_working_directory_is_reported(call: Call, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir("gone")
    (tmp_path / "gone").rmdir()
    outcome = call("run", "synchronizer")
    os.chdir(tmp_path)
    assert outcome.code == 2
    assert outcome.complaint == (
        "the working directory was deleted; change to another one"
    )


def test_a_module_that_ends_in_its_own_way_is_refused(
    call: Call, tmp_path: Path
) -> None:
    text = "class Stop(BaseException): ...\nraise Stop('for now')\n"
    (tmp_path / "cli_subjects.py").write_text(text)
    outcome = call("run", "cli_subjects.py:Right")
    assert outcome.code == 2
    assert outcome.complaint == (
        "subject 'cli_subjects.py:Right' cannot be imported: Stop: for now, at "
        "cli_subjects.py:2"
    )


@pytest.mark.long
@pytest.mark.parametrize("place", ["at import", "in bind"])
def test_the_report_is_written_where_the_command_began(
    call: Call, tmp_path: Path, place: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    with (tmp_path / "cli_subjects.py").open("a") as file:
        if place == "at import":
            file.write("\nimport os\nos.chdir('elsewhere')\nMoves = Right\n")
        else:
            file.write(
                "\nimport os\n\nclass Moves(Right):\n    def bind(self):\n"
                f"        os.chdir({str(tmp_path / 'elsewhere')!r})\n"
                "        super().bind()\n"
            )
    outcome = call(
        "run", "cli_subjects.py:Moves", "--examples", "2", "--seed", "0",
        "--json", "report.json",
    )  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / "report.json").is_file()
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def project(*lines: str) -> None:
    Path("pyproject.toml").write_text("\n".join(["[tool.syncverify]", *lines]))


@pytest.mark.long
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
