"""Files and modules of anybody: one clear line and exit code 2, and no process that waits."""

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


@pytest.mark.slow
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
