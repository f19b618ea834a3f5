"""Each format adds lines to each command that takes `--format`, and changes nothing else."""

import json
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
    # What is set is gone after the test, and the module of that name with it.
    monkeypatch.setitem(sys.modules, "raising", sys)
    monkeypatch.delitem(sys.modules, "raising")
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


RACES = """
import torch
import torch.distributed as dist

def races():
    value, other = torch.ones(4, device="cuda"), torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        value.add_(1)
    dist.all_reduce(value)
    value.add_(1)
    with torch.cuda.stream(other):
        value.mul_(2)
"""
SUMS = """
import torch
from torch import distributed, nn
layouts = ["dp=2"]
def build(): return nn.Linear(2, 2).cuda()
def parallelize(model, mesh):
    for each in model.parameters():
        each.register_hook(lambda grad: distributed.all_reduce(grad))
def batch(): return torch.randn(4, 2, device="cuda")
def loss(model, batch): return model(batch).square().mean()
"""
SCRIPT = f"{RACES}\ndist.init_process_group('nccl')\nraces()\n"
PROGRAMS = {
    "simulate": (RACES, ("simulate", "races.py:races", "--ranks", "2"), [9, 11]),
    "parity": (SUMS, ("parity", "sums.py", "--quiet"), [8]),
    "record": (SCRIPT, ("record", "script.py"), [9, 11]),
}


@pytest.mark.parametrize(
    "face",
    [
        "simulate",
        pytest.param("parity", marks=pytest.mark.long),
        pytest.param("record", marks=pytest.mark.long),
    ],
)
def test_each_program_is_annotated_and_written_as_sarif(
    in_clone: Call, face: str
) -> None:
    text, (command, *arguments), lines = PROGRAMS[face]
    file = arguments[0].partition(":")[0]
    Path(file).write_text(text)
    files = ("--sarif", "a.sarif", "--json", "a.json", "--format", "github")
    found = [in_clone(command, *files, *arguments)]
    report = read("a.json")
    if face != "record":
        found.append(
            in_clone("replay", report["violations"][0]["token"], arguments[0], *files)
        )
    for outcome in found:
        assert outcome.code == 1
        places = [f"::error file=job/{file},line={each}," for each in lines]
        assert [
            each[: len(place)]
            for each, place in zip(annotations(outcome.out), places, strict=True)
        ] == places
        log = read("a.sarif")
        (run,) = log["runs"]
        regions = [each["locations"][0]["physicalLocation"] for each in run["results"]]
        assert [each["region"]["startLine"] for each in regions] == lines
        # A host takes two results with one fingerprint for one.
        prints = [str(each["partialFingerprints"]) for each in run["results"]]
        assert len({*prints}) == len(lines)


def read(name: str) -> Any:
    return json.loads(Path(name).read_text())


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
