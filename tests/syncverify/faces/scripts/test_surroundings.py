"""Warnings, clocks and `atexit` of recorded scripts."""

import atexit
import warnings
from pathlib import Path

import pytest

from syncverify.faces.scripts.recording import judge, record
from syncverify.faces.scripts.script import (
    Script,
    exit_functions_run,
    show_warnings,
    warnings_kept,
)

SCRIPT = """
import warnings
from time import monotonic

import torch
import torch.distributed as dist

start = monotonic()
dist.init_process_group("nccl")
warnings.warn("of every rank")
if dist.get_rank() == 1:
    warnings.warn("of one rank")
dist.all_reduce(torch.ones(4, device="cuda"))
if monotonic() - start > 1e6:
    dist.barrier()
print(f"{monotonic() - start:.1f} s")
"""


def test_a_warning_is_kept_once_and_shown_with_its_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show = warnings.showwarning
    with warnings_kept() as kept:
        for words in ("again", "again", "once"):
            warnings.showwarning(UserWarning(words), UserWarning, "gone.py", 7)
    assert warnings.showwarning is show
    assert [*kept] == [
        "gone.py:7: UserWarning: again\n",
        "gone.py:7: UserWarning: once\n",
    ]
    show_warnings({0: [*kept], 2: [*kept][:1]})
    assert capsys.readouterr().err.splitlines() == [
        "ranks 0, 2: gone.py:7: UserWarning: again",
        "rank 0: gone.py:7: UserWarning: once",
    ]


@pytest.mark.long
def test_a_script_shows_its_warnings_once_and_has_a_remark_on_its_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    simulation = judge(record(Script(str(path)), 2))
    simulation.check()
    (found,) = map(str, simulation.remarks)
    assert found.startswith(f"a clock decides at {path}:14 in <module> (ranks 0, 1)")
    shown = [line for line in capsys.readouterr().err.splitlines() if "rank" in line]
    assert [line.partition(": ")[0] for line in shown if "UserWarning" in line] == [
        "ranks 0, 1",
        "rank 1",
    ]


def register_some(ran: list[str]) -> None:
    atexit.register(ran.append, "first")
    atexit.register(ran.index, "missing")  # raises
    atexit.register(ran.clear)
    atexit.unregister(ran.clear)
    atexit.register(ran.append, "last")


def test_the_last_runs_first_and_an_error_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []
    with exit_functions_run():
        register_some(ran)
        assert not ran
    assert ran == ["last", "first"]
    assert "ValueError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("end", "expected"),
    [(SystemExit(3), ["last", "first"]), (KeyError(), [])],
    ids=["exit", "error"],
)
def test_exit_functions_run_after_an_exit_and_not_after_an_error(
    end: BaseException, expected: list[str]
) -> None:
    ran: list[str] = []

    def script() -> None:
        with exit_functions_run():
            register_some(ran)
            raise end

    with pytest.raises(type(end)):
        script()
    assert ran == expected
