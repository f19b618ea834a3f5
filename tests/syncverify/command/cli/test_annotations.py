"""Each format adds lines to each command that takes `--format`, and changes nothing else."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify.scenario.replay_token import Reproducer, encode
from tests.programs import one_parameter
from tests.syncverify.command.cli.test_read import write

Call = Callable[..., Any]
ALONE = one_parameter(1, "p", (2,), cap_bytes=64)
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


# Arguments with which a command finds a violation.
COMMANDS = {
    "run": ("raising.py:NeverBinds", "--examples", "2", "--seed", "0"),
    "replay": (TOKEN, "raising.py:NeverBinds"),
    "probe": ("raising.py:NeverBinds", "--scenarios", "1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_violation_has_an_annotation_before_the_text(
    in_clone: Call, command: str
) -> None:
    arguments = (command, *COMMANDS[command])
    outcome = in_clone(*arguments, "--format", "github")
    assert outcome.code == 1
    (line,) = annotations(outcome.out)
    assert line.startswith(EXPECTED)
    assert "%0Ahint: " in line
    assert "%0Areplay: syncverify replay sv2-" in line
    assert outcome.out.splitlines()[-1] != line  # the verdict is the last line


def test_without_a_format_nothing_is_annotated(in_clone: Call) -> None:
    outcome = in_clone("replay", *COMMANDS["replay"])
    assert outcome.code == 1
    assert not annotations(outcome.out)


def test_dumps_are_annotated_where_the_checkout_has_the_file(
    in_clone: Call, tmp_path: Path
) -> None:
    (tmp_path / "a.py").touch()
    write(Path(), 4, 4)
    right = in_clone("read", "rank_0", "rank_1", "--format", "github")
    assert (right.code, annotations(right.out)) == (0, [])
    write(Path(), 4, 5)
    outcome = in_clone("read", "rank_0", "rank_1", "--format", "github")
    assert outcome.code == 1
    (line,) = annotations(outcome.out)
    assert line.startswith(
        "::error file=a.py,line=0,title=syncverify::collectives_match_across_ranks "
        "(collective_mismatch): ranks [0, 1] met in one collective and disagree%0Arank 0: "
    )
