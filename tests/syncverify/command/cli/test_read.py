"""The verdict, the exit code and the complaints of `read`."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify.judge.dumps.writing import dumps_of
from syncverify.scenario.replay_token import Reproducer, encode
from tests.programs import one_parameter
from tests.syncverify.judge.properties.handmade_traces import launch

Call = Callable[..., Any]
BOTH = (0, 1)
SCENARIO = one_parameter(2, "p", (2,), cap_bytes=64)
TOKEN = encode(Reproducer("gradient_equals_reference", "scaled", SCENARIO))


def write(folder: Path, *sizes: int) -> None:
    traces = [[launch("g", BOTH, 0, numel=size)] for size in sizes]
    for rank, values in dumps_of(traces).items():
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(values))


def test_right_dumps_have_no_violation(call: Call, tmp_path: Path) -> None:
    write(tmp_path, 4, 4)
    outcome = call("read", "rank_0", "rank_1")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "NO VIOLATION: 1 collective in 2 dumps\n"


def test_ranks_that_disagree_are_a_violation(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    write(folder, 4, 5)
    outcome = call("read", "dumps")
    assert outcome.code == 1
    assert outcome.out == (
        "VIOLATION: collectives_match_across_ranks (collective_mismatch)\n"
        "  On each communicator, the n-th collective is the same on all ranks.\n"
        "\n"
        "  ranks [0, 1] met in one collective and disagree\n"
        "  rank 0: all_reduce of 4 x Float over ranks [0, 1], at a.py:0 in g\n"
        "  rank 1: all_reduce of 5 x Float over ranks [0, 1], at a.py:0 in g\n"
        "  seen on:    ranks 0, 1\n"
        "\n"
        "1 VIOLATION: 1 collective in 2 dumps\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("rank_7",), "cannot read 'rank_7': No such file or directory"),
        (("rank_0", "rank_0"),
            "expected one dump a rank, but 'rank_0' is a second one of rank 0"),
        (
            ("notes.txt",),
            "expected a file name that ends with a rank, such as 'rank_0', got 'notes.txt'"),
        (("empty",), "expected a dump in the folder, which holds no file"),
    ],
)  # fmt: skip
def test_unusable_files_are_refused_in_one_line(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    write(tmp_path, 4, 4)
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    outcome = call("read", *arguments)
    assert (outcome.code, outcome.complaint) == (2, complaint)


@pytest.mark.slow
def test_replay_writes_a_trace_and_dumps(call: Call, tmp_path: Path) -> None:
    """A right subject has them too: the run of the scenario is written."""
    files = ("--trace", "trace.json", "--flight-recorder", "dumps")
    outcome = call("replay", TOKEN, "cli_subjects:Right", *files)
    assert outcome.code == 0
    assert '"traceEvents"' in (tmp_path / "trace.json").read_text()
    names = sorted(each.name for each in (tmp_path / "dumps").iterdir())
    assert names == ["rank_0", "rank_1"]
    assert call("read", "dumps").code == 0


@pytest.mark.long
def test_run_without_violation_writes_no_trace(call: Call, tmp_path: Path) -> None:
    few = ("--examples", "1", "--seed", "0", "--ranks", "1", "--no-database")
    outcome = call("run", "cli_subjects:Right", *few, "--trace", "trace.json")
    assert outcome.code == 0
    note = "note: no violation was played again, so 'trace.json' is not written"
    assert note in outcome.out
    assert not (tmp_path / "trace.json").exists()
