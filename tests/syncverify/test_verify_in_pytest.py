"""A violation as a user's own tests show it."""

import re
import shlex
from pathlib import Path

import pytest

from tests.warm_python import python

pytestmark = pytest.mark.long(10)
TEST = """
from syncverify.explain.repair import diagnosis
from syncverify.synchronizer import GradientSynchronizer
from syncverify import verify

# The search for a fix takes seconds, and has tests of its own.
diagnosis.find_fix = lambda *_: None

class Doubles(GradientSynchronizer):
    def __init__(self, groups, bucket_size_mb, require_accumulations):
        super().__init__(groups, bucket_size_mb, require_accumulations)
        self.mine = [p for group in groups for p in group if p.requires_grad]

    def wait(self):
        super().wait()
        for parameter in self.mine:
            parameter.grad.mul_(2)


def test_mine():
    verify(Doubles, ranks=1, examples=3, seed=0)
"""


def run(folder: Path, *words: str) -> str:
    ended = python("-m", *words, folder=folder, COLUMNS="300")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stdout


def test_pytest_shows_the_diagnosis_and_the_command_that_plays_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_mine.py").write_text(TEST)
    shown = run(tmp_path, "pytest", "-p", "no:cacheprovider", "tests")
    start = "FAILED tests/test_mine.py::test_mine - syncverify.PropertyViolation: "
    (summary,) = (line for line in shown.splitlines() if line.startswith(start))
    assert summary.startswith(f"{start}unreduced_stay_local")
    assert " is wrong: " in summary
    assert "syncverify/command/verification" not in shown
    (line,) = set(re.findall(r"replay: +(syncverify .*)", shown))
    again = run(tmp_path, *shlex.split(line))
    assert again.splitlines()[-1].startswith(
        "REPRODUCED: tests/test_mine.py:Doubles violates unreduced_stay_local"
    )
