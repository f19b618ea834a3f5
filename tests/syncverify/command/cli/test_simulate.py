"""`syncverify simulate`: any function of a rank, from the command line."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncverify.scenario.replay_token import ProgramPlay, encode
from tests.warm_python import python

Call = Callable[..., Any]

PROGRAMS = """
import os
import signal
import sys
import time

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


def asks_a_user(rank):
    return input()


def closes_its_streams(rank):
    print("is heard")
    sys.stdout.close()
    sys.stderr.close()


def closes_descriptors(rank):
    print("is heard", flush=True)
    for each in (1, 2):
        os.close(each)


def closes_nothing(rank):
    print("is heard")


as_lambda = lambda rank: rank
runs = []


def is_interrupted(rank):
    total = torch.ones(2, device="cuda")
    work = dist.all_reduce(total, async_op=True)
    total += 1
    if not work.is_completed():
        work.wait()
    runs.append(rank)
    if len(runs) == 6:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)


number = 3
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "jobs.py").write_text(PROGRAMS)
    yield
    sys.modules.pop("jobs", None)


def test_a_race_is_a_violation(call: Call) -> None:
    outcome = call("simulate", "jobs.py:forgets_to_wait", "--ranks", "2")
    assert outcome.code == 1
    assert "jobs.py:13 in forgets_to_wait" in outcome.out
    assert outcome.out.endswith(
        "1 VIOLATION: jobs.py:forgets_to_wait (2 ranks, simulated cuda, 1 run: timing "
        "cannot matter)\n"
    )


@pytest.mark.long
def test_the_printed_line_plays_the_violation_again(call: Call) -> None:
    first = call("simulate", "jobs.py:hangs_if_it_is_fast", "--schedules", "all")
    line = next(each for each in first.out.splitlines() if "replay:" in each)
    words = line.split("syncverify ")[1].split()
    assert (words[0], words[2:]) == ("replay", ["jobs.py:hangs_if_it_is_fast"])
    again = call(*words)
    assert (first.code, again.code) == (1, 1)
    assert again.out.startswith(
        "plays again: syncverify simulate --ranks 4 --device cuda"
    )
    assert " --schedule " in again.out.splitlines()[0]
    assert "\nREPRODUCED: jobs.py:hangs_if_it_is_fast violates " in again.out


def test_a_report_is_played_again_on_another_program(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("simulate", "jobs.py:forgets_to_wait", "--ranks", "2", "--json", "found.json")
    again = call("replay", "found.json#1", "jobs.py:is_right")
    race = "streams_order_shared_memory (race)"
    assert again.code == 0
    assert again.out.endswith(f"\nNOT REPRODUCED: jobs.py:is_right holds {race}\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    named = "../jobs.py:forgets_to_wait"
    again = call("replay", "../found.json", named, "--html", "page.html")
    assert again.out.endswith(f"\nREPRODUCED: {named} violates {race}\n")
    assert " in one legal order" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--backend", "gloo"], "--backend is for tokens of scenarios"),
        (["--trace", "trace.json"], "--trace is for tokens of scenarios"),
    ],
)
def test_what_is_for_scenarios_is_refused_for_a_program(
    call: Call, options: list[str], complaint: str
) -> None:
    play = ProgramPlay("a", "b", "simulate", ("--ranks", "2"))
    outcome = call("replay", encode(play), "jobs.py:is_right", *options)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1


def test_files_have_the_report(call: Call, tmp_path: Path) -> None:
    call(
        *("simulate", "jobs.py:forgets_to_wait", "--ranks", "2"),
        *("--json", "report.json", "--html", "report.html"),
    )
    report = json.loads((tmp_path / "report.json").read_text())
    (violation,) = report["violations"]
    assert violation["property"] == "streams_order_shared_memory"
    harm = {"rank": 0, "as_queued": [1, 1], "other": [2, 2], "start": 0}
    assert violation["harm"] == harm
    assert " in one legal order" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("jobs.py",),
            "expected a program as module:function or file.py:function, not 'jobs.py'"),
        (("jobs.py:number",), "expected a function of a rank: 3 is not callable"),
        (("jobs.py:is_right", "--schedule", "first"),
            "expected a schedule such as 0,0,1 as a report prints it, not 'first'"),
        (("jobs.py:is_right", "--html", "nowhere/report.html"),
            "cannot write 'nowhere/report.html': its folder does not exist"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line(
    call: Call, arguments: tuple[str, ...], complaint: str
) -> None:
    outcome = call("simulate", *arguments)
    assert (outcome.code, outcome.out, outcome.complaint) == (2, "", complaint)


def test_what_is_not_simulated_is_bad_usage(call: Call) -> None:
    outcome = call("simulate", "jobs.py:receives_from_anybody", "--ranks", "2")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.complaint == (
        "the sim backend does not simulate recv from any rank, used at jobs.py:31 in "
        "receives_from_anybody"
    )


def test_the_report_names_the_program_as_it_was_asked_for(call: Call) -> None:
    outcome = call("simulate", "jobs.py:as_lambda", "--ranks", "2")
    assert outcome.out.startswith("NO VIOLATION: jobs.py:as_lambda (2 ranks")


def test_a_rank_that_asks_for_input_gets_none(call: Call) -> None:
    outcome = call("simulate", "jobs.py:asks_a_user", "--ranks", "1")
    assert outcome.code == 1
    assert "rank 0 raised EOFError: EOF when reading a line" in outcome.out


@pytest.mark.long
def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    """The program sends the interrupt itself, in its third run."""
    words = ("jobs.py:is_interrupted", "--ranks", "2", "--schedules", "all")
    command = ("-m", "syncverify", "simulate", *words, "--json", "found.json")
    done = python(*command, folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        130,
        "syncverify: interrupted; what was found before is above\n",
    )
    assert "VIOLATION: streams_order_shared_memory (race)" in done.stdout
    assert "interrupted before all timings were played" in done.stdout
    report = json.loads((tmp_path / "found.json").read_text())
    assert (report["runs"], len(report["violations"])) == (2, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["closes_its_streams", "closes_descriptors", "closes_nothing"]
)
def test_a_program_that_closes_its_output_keeps_the_verdict(
    tmp_path: Path, name: str
) -> None:
    command = ("-m", "syncverify", "simulate", f"jobs.py:{name}", "--ranks", "1")
    done = python(*command, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert first == "is heard"
    assert last.startswith(f"NO VIOLATION: jobs.py:{name} (1 rank")
