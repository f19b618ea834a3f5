"""What was found before a signal stays, on the screen and in the database."""

import json
import re
import signal
from pathlib import Path

import pytest

from syncverify.plain_text import counted
from tests.warm_python import python

pytestmark = pytest.mark.long

SUBJECT = '''
import os
import signal
from pathlib import Path

from syncverify.synchronizer import GradientSynchronizer

generations, number, at = (int(word) for word in os.environ["SIGNAL"].split())
num_binds = 0


def ancestor(generations):
    pid = os.getpid()
    for _ in range(generations):
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid


class Doubles(GradientSynchronizer):
    """Doubles every gradient; a signal comes in the n-th bind() after that is found."""

    def __init__(self, groups, bucket_size_mb, require_accumulations):
        super().__init__(groups, bucket_size_mb, require_accumulations)
        self.mine = [p for group in groups for p in group]

    def bind(self):
        global num_binds
        super().bind()
        num_binds += Path("kept").exists()
        if num_binds == at:
            os.kill(ancestor(generations), number)

    def wait(self):
        super().wait()
        for parameter in self.mine:
            if parameter.grad is not None:
                parameter.grad.mul_(2)
'''
REPORTING = ("--json", "report.json")
EXPLORING, SHRINKING = "100000", "3"  # examples: too many to end, and soon all played


def run(folder: Path, *arguments: str, signal_words: str) -> tuple[int, str, str]:
    (folder / "signals_itself.py").write_text(SUBJECT)
    ended = python(
        "-m", "syncverify", "run", "signals_itself:Doubles",
        "--seed", "0", "--ranks", "2", "--database", "kept", *arguments,
        folder=folder, SIGNAL=signal_words,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def kept(folder: Path) -> set[str]:
    """Return the tokens of the database, shrunk or not."""
    files = (path for path in (folder / "kept").rglob("*") if path.is_file())
    texts = {path.read_text() for path in files}
    return {text for text in texts if text.startswith("sv2-")}


def reported(folder: Path) -> set[str]:
    """Return the tokens of the report of a search that was interrupted."""
    report = json.loads((folder / "report.json").read_text())
    assert report["interrupted"]
    assert report["examples"] >= 0
    return {violation["token"] for violation in report["violations"]}


def printed(out: str) -> list[str]:
    return re.findall(r"^  if this run is cut off: .*? (sv2-\S+)", out, re.MULTILINE)


@pytest.mark.parametrize(("examples", "at"), [(EXPLORING, 1), (SHRINKING, 7)])
def test_an_interrupt_loses_no_violation(
    tmp_path: Path, examples: str, at: int
) -> None:
    words = f"0 {int(signal.SIGINT)} {at}"
    code, out, err = run(
        tmp_path, "--examples", examples, *REPORTING, signal_words=words
    )
    assert code == 130
    tokens = printed(out)
    assert tokens
    assert kept(tmp_path) == reported(tmp_path) == {*tokens}
    assert err == (
        f"syncverify: interrupted; {counted(len(tokens), 'violation')} found so far: above and "
        "in 'kept' and in 'report.json'\n"
    )


def test_a_termination_loses_no_violation(tmp_path: Path) -> None:
    words = f"1 {int(signal.SIGTERM)} 7"
    code, out, err = run(
        tmp_path, "--examples", SHRINKING, *REPORTING, signal_words=words
    )
    assert (code, err) == (-signal.SIGTERM, "")
    assert printed(out)
    assert kept(tmp_path) == reported(tmp_path) == {*printed(out)}


def test_an_interrupt_of_several_processes_loses_no_violation(tmp_path: Path) -> None:
    """The processes of the search hold stdout open: that it ends shows that they ended."""
    # Between this command and its processes there is the template that forks them.
    words = f"2 {int(signal.SIGINT)} 40"
    code, out, err = run(
        tmp_path, "--examples", EXPLORING, "--jobs", "2", *REPORTING, signal_words=words
    )
    assert code == 130
    assert printed(out)
    assert kept(tmp_path) == reported(tmp_path) == {*printed(out)}
    assert err.startswith("syncverify: interrupted; ")
