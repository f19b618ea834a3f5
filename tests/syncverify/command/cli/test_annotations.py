"""`--format github` prints a workflow command for each violation, and changes nothing else."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify.dumps.writing import dumps_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.scenario.token import Reproducer, encode
from tests.syncverify.judge.properties.handmade_traces import launch

Call = Callable[..., Any]
ALONE = Scenario(MeshSpec((1,), ("dp",)), (ParameterSpec("p", (2,), ("R",)),), (1,), 64)
TOKEN = encode(Reproducer("every_rank_finishes", "raised_ValueError", ALONE))
RAISES = """
class NeverBinds:
    def __init__(self, groups, bucket_size_mb, require_accumulations): ...
    def bind(self):
        raise ValueError("50% of\\nit")
    def wait(self): ...
    def zero_grad(self): ...
    def unbind(self): ...
"""


@pytest.fixture
def in_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> Call:
    """Call the command in a folder of a checkout, which has a subject that raises."""
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "raising.py").write_text(RAISES)
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "raising", raising=False)
    return call


def annotations(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("::")]


EXPECTED = (
    "::error file=job/raising.py,line=5,title=syncverify::every_rank_finishes "
    "(raised_ValueError): rank 0 raised ValueError in step 0, bind: 50%25 of "
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "raising.py:NeverBinds", "--examples", "2", "--seed", "0"),
        ("replay", TOKEN, "raising.py:NeverBinds"),
        ("probe", "raising.py:NeverBinds", "--scenarios", "1"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_violation_has_an_annotation_before_the_text(
    in_clone: Call, arguments: tuple[str, ...]
) -> None:
    outcome = in_clone(*arguments, "--format", "github")
    assert outcome.code == 1
    (line,) = annotations(outcome.out)
    assert line.startswith(EXPECTED)
    assert "%0Ahint: " in line
    assert "%0Areplay: syncverify replay sv2-" in line
    assert outcome.out.splitlines()[-1] != line  # the verdict is the last line
    assert not annotations(in_clone(*arguments).out)


@pytest.mark.slow
def test_a_right_subject_has_none(call: Call) -> None:
    arguments = ("synchronizer", "--examples", "1", "--seed", "0", "--ranks", "1")
    outcome = call("run", *arguments, "--format", "github")
    assert outcome.code == 0
    assert not annotations(outcome.out)


def test_dumps_are_annotated_where_the_checkout_has_the_file(
    in_clone: Call, tmp_path: Path
) -> None:
    (tmp_path / "a.py").touch()
    traces = [[launch("g", (0, 1), 0, numel=size)] for size in (4, 5)]
    for rank, values in dumps_of(traces).items():
        Path(f"rank_{rank}").write_bytes(pickle.dumps(values))
    outcome = in_clone("read", "rank_0", "rank_1", "--format", "github")
    assert outcome.code == 1
    (line,) = annotations(outcome.out)
    assert line.startswith(
        "::error file=a.py,line=0,title=syncverify::collectives_match_across_ranks "
        "(collective_mismatch): ranks [0, 1] met in one collective and disagree%0Arank 0: "
    )


@pytest.mark.long
def test_a_lost_process_is_annotated(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "dying.py").write_text(
        RAISES.replace('raise ValueError("50% of\\nit")', "import os; os._exit(0)")
    )
    arguments = ["run", "dying.py:NeverBinds", "--no-beyond", "--format", "github"]
    done = subprocess.run(
        [sys.executable, "-m", "syncverify", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    (line,) = annotations(done.stdout)
    assert line.startswith("::error file=dying.py,line=2,title=syncverify::")
