"""Each format adds lines to each command that takes `--format`, and changes nothing else."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from syncverify.command.options import cli
from syncverify.report.annotations import _WRITERS as WRITERS
from syncverify.report.annotations import Annotation
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.settings import REPORT_FORMATS
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


# Arguments of each command that takes `--format`, with which it finds a violation.
COMMANDS = {
    "run": ("raising.py:NeverBinds", "--examples", "2", "--seed", "0"),
    "replay": (TOKEN, "raising.py:NeverBinds"),
    "probe": ("raising.py:NeverBinds", "--scenarios", "1"),
    "read": ("rank_0", "rank_1"),
}


def test_all_commands_with_formats_are_here() -> None:
    found = {
        name
        for name, command in cli.commands.items()
        if "shown_as" in {option.name for option in command.params}
    }
    assert found == COMMANDS.keys()


def in_short(found: Sequence[Annotation]) -> Iterator[str]:
    """Write a format that no command can know by its name."""
    yield f"SHOWN {len(found)}: {', '.join(each.title for each in found)}"


@pytest.fixture
def writes_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in REPORT_FORMATS:
        monkeypatch.setitem(WRITERS, name, in_short)


@pytest.mark.slow
def test_a_writer_runs_without_violations(
    in_clone: Call, writes_in_short: None
) -> None:
    write(Path(), 4, 4)
    alone = ("synchronizer", "--examples", "1", "--seed", "0", "--ranks", "1")
    for arguments in (("run", *alone), ("read", "rank_0", "rank_1")):
        outcome = in_clone(*arguments, "--format", "github")
        assert outcome.code == 0, outcome
        assert "SHOWN 0: \n" in outcome.out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "replay", "probe"])
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
    write(Path(), 4, 5)
    outcome = in_clone("read", "rank_0", "rank_1", "--format", "github")
    assert outcome.code == 1
    (line,) = annotations(outcome.out)
    assert line.startswith(
        "::error file=a.py,line=0,title=syncverify::collectives_match_across_ranks "
        "(collective_mismatch): ranks [0, 1] met in one collective and disagree%0Arank 0: "
    )
