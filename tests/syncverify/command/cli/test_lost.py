"""A violation that loses the process that plays it is kept and shown like any other."""

import json
from pathlib import Path

import pytest

from tests.warm_python import python

pytestmark = pytest.mark.long

SUBJECT = """
import os
from syncverify.synchronizer import GradientSynchronizer

class Dies(GradientSynchronizer):
    def wait(self):
        os._exit(0)
"""


def test_a_lost_process_is_in_each_report_and_played_first_by_the_next_run(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()  # annotations name files of a checkout
    (tmp_path / "mine.py").write_text(SUBJECT)

    def run(*arguments: str) -> tuple[str, str]:
        command = ("-m", "syncverify", "run", "mine:Dies", *arguments)
        done = python(*command, folder=tmp_path)
        assert (done.returncode, done.stderr) == (1, "")
        return done.stdout, done.stdout.split("replay:")[1].split()[2]

    kept = ("--ranks", "2", "--database", "kept", "--format", "github")
    files = ("--json", "report.json", "--sarif", "lost.sarif")
    out, token = run("--seed", "3", *files, *kept)
    (line,) = (line for line in out.splitlines() if line.startswith("::"))
    assert line.startswith("::error file=mine.py,line=5,title=syncverify::")
    (sarif,) = json.loads((tmp_path / "lost.sarif").read_text())["runs"]
    assert [each["ruleId"] for each in sarif["results"]] == ["every_rank_finishes"]
    report = json.loads((tmp_path / "report.json").read_text())
    (violation,) = report["violations"]
    assert (violation["property"], violation["token"]) == ("every_rank_finishes", token)
    assert violation["evidence"] == {
        "cause": "process_died",
        "kind": "process_died",
        "details": [],
    }
    assert violation["summary"] == (
        "the process that plays the ranks ended by exit code 0, in two runs of one scenario"
    )
    assert report["examples"] == 1
    assert (report["seed"], report["seconds"]) == (3, None)
    found = (file for file in (tmp_path / "kept").rglob("*") if file.is_file())
    assert token.encode() in [file.read_bytes() for file in found]
    assert run("--seed", "4", *kept)[1] == token


CRASHES = """
import ctypes
import torch

{at_import}

def reads():
    torch.ones(2, device="cuda")
    ctypes.string_at(0)
"""


@pytest.mark.parametrize(
    ("at_import", "line"),
    [
        ("", "mine.py:9 in reads: ctypes.string_at(0)"),
        ("ctypes.string_at(0)", "mine.py:5 in <module>: ctypes.string_at(0)"),
    ],
)
def test_a_signal_before_the_first_play_says_which_line_ran(
    tmp_path: Path, at_import: str, line: str
) -> None:
    (tmp_path / "mine.py").write_text(CRASHES.format(at_import=at_import))
    command = ("-m", "syncverify", "simulate", "mine.py:reads", "--ranks", "2")
    done = python(*command, folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    first, *_, last = done.stderr.splitlines()
    assert first == (
        "syncverify: no verdict: the process that plays ended by signal 11 before its "
        "first scenario"
    )
    assert last.strip() == line
