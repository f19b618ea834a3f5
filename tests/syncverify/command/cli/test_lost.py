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
