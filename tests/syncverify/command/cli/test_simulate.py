"""`syncverify simulate`: any function of a rank, from the command line."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

PROGRAMS = """
import torch
import torch.distributed as dist


def forgets_to_wait(rank):
    total = torch.ones(2, device="cuda")
    dist.all_reduce(total, async_op=True)
    return total


def is_right(rank):
    total = torch.ones(2, device="cuda")
    dist.all_reduce(total)
    return total


def hangs_if_it_is_fast(rank):
    work = dist.all_reduce(torch.ones(2, device="cuda"), async_op=True)
    if work.is_completed():
        dist.barrier()
    work.wait()


def receives_from_anybody(rank):
    dist.recv(torch.ones(2, device="cuda"))


number = 3
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path) -> Iterator[None]:
    """Write the programs into the working directory."""
    (tmp_path / "jobs.py").write_text(PROGRAMS)
    yield
    sys.modules.pop("jobs", None)


def test_a_race_is_a_violation(call: Call) -> None:
    outcome = call("simulate", "jobs.py:forgets_to_wait", "--ranks", "2")
    assert outcome.code == 1
    assert "jobs.py:8 in forgets_to_wait" in outcome.out
    assert outcome.out.endswith(
        "1 VIOLATION: jobs.py:forgets_to_wait (2 ranks, simulated cuda, 1 run: timing "
        "cannot matter)\n"
    )


def test_a_right_program_is_none(call: Call) -> None:
    outcome = call("simulate", "jobs.py:is_right")
    assert outcome.code == 0
    assert outcome.out.startswith("NO VIOLATION: jobs.py:is_right (4 ranks")


def test_the_printed_line_plays_the_violation_again(call: Call) -> None:
    first = call("simulate", "jobs.py:hangs_if_it_is_fast", "--schedules", "all")
    line = next(each for each in first.out.splitlines() if "replay:" in each)
    words = line.split("syncverify ")[1].split()
    assert "--schedule" in words
    again = call(*words)
    assert (first.code, again.code) == (1, 1)
    assert "deadlock" in again.out


def test_files_have_the_report(call: Call, tmp_path: Path) -> None:
    call(
        *("simulate", "jobs.py:forgets_to_wait", "--ranks", "2"),
        *("--json", "report.json", "--html", "report.html"),
    )
    report = json.loads((tmp_path / "report.json").read_text())
    (violation,) = report["violations"]
    assert violation["property"] == "streams_order_shared_memory"
    assert violation["harm"] == {"rank": 0, "as_queued": [1, 1], "other": [2, 2]}
    assert "In another legal order" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("jobs.py",),
            "expected a program as module:function or file.py:function, not 'jobs.py'",
        ),
        (
            ("jobs.py:number",),
            "program 'jobs.py:number' is not callable: expected a function",
        ),
        (
            ("jobs.py:is_right", "--schedule", "first"),
            "expected a schedule such as 0,0,1 as a report prints it, not 'first'",
        ),
        (
            ("jobs.py:is_right", "--html", "nowhere/report.html"),
            "cannot write 'nowhere/report.html': its folder does not exist",
        ),
    ],
)
def test_bad_usage_is_one_line(
    call: Call, arguments: tuple[str, ...], complaint: str
) -> None:
    outcome = call("simulate", *arguments)
    assert (outcome.code, outcome.out, outcome.complaint) == (2, "", complaint)


def test_what_is_not_simulated_is_bad_usage(call: Call) -> None:
    outcome = call("simulate", "jobs.py:receives_from_anybody", "--ranks", "2")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.complaint.startswith("not simulated: ")
