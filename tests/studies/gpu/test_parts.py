"""Each part runs as far as it can without a GPU, and a page claims nothing about GPUs without one."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from studies.gpu import __main__ as command
from studies.gpu import (
    bank,
    commands,
    host_waits,
    installation,
    shared_device,
    step_time,
    traces,
    words,
)
from studies.gpu.part import Part, Result
from syncverify.scenario.feature_table import BACKWARDS

CPU = torch.device("cpu")


def test_installation_does_not_run_without_a_gpu() -> None:
    result = installation.run(CPU)
    assert (result.state, result.device) == ("not run", "cpu")
    assert installation.versions()["torch"] == torch.__version__


@pytest.mark.long
def test_words_are_played_on_the_device() -> None:
    result = words.run(CPU, ["backward"])
    assert (result.state, result.device, result.lines) == ("passed", "cpu", ())
    assert result.summary.startswith(f"{len(BACKWARDS)} words of backward")


@pytest.mark.long
def test_searches_run_on_gloo_instead() -> None:
    result = commands.run_searches(CPU, ["ddp"], examples=3)
    assert (result.state, result.device) == ("passed", "cpu")
    assert "(3 scenarios on gloo, seed 0" in result.lines[0]


@pytest.mark.slow
def test_shared_device_falls_back_to_sim() -> None:
    result = shared_device.run(CPU, ["synchronizer"], 3)
    assert (result.state, result.device) == ("passed", "cpu")
    assert "on the simulated streams of `sim`" in result.summary


@pytest.mark.slow
def test_bank_plays_sim_alone() -> None:
    result = bank.run(CPU, 2)
    assert (result.state, result.device) == ("passed", "cpu")
    rows = [line for line in result.lines if line.startswith("| `")]
    assert len(rows) == 2
    assert all(row.endswith("| not run | not run |") for row in rows)
    assert all("(" in row for row in rows)


@pytest.mark.slow
def test_traces_count_operators_of_sim() -> None:
    result = traces.run(CPU, 1)
    assert (result.state, result.device) == ("passed", "cpu")
    assert "| current_stream |" in result.lines[2]
    assert result.lines[2].endswith("| not run | not run |")


@pytest.mark.long
def test_the_synchronizer_has_no_host_wait() -> None:
    result = host_waits.run(CPU)
    assert (result.state, result.device, result.lines) == ("passed", "cpu", ())


@pytest.mark.slow
def test_a_step_is_timed_and_has_the_gradients_of_ddp() -> None:
    result = step_time.run(CPU, rounds=3)
    assert (result.state, result.device) == ("passed", "cpu")
    header, _, row, end = result.lines
    assert header.count("|") == row.count("|") == 7
    assert (row.startswith("| 6 of 512 | 8 | "), end) == (True, "")
    assert result.summary.endswith("times the time of DDP")


PASSED = Result("passed", "cpu", "all of it")
NOT_RUN = Result("not run", "cpu", "no GPU")


def parts(*results: Result) -> tuple[Part, ...]:
    def run(result: Result) -> Callable[[torch.device], Result]:
        return lambda _: result

    return tuple(
        Part(f"part-{n}", f"Part {n}", "About it.", run(result))
        for n, result in enumerate(results)
    )


def code_and_output(
    monkeypatch: pytest.MonkeyPatch, *results: Result, arguments: tuple[str, ...] = ()
) -> tuple[int, str]:
    monkeypatch.setattr(command, "PARTS", parts(*results))
    result = CliRunner().invoke(command.main, arguments, standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output


def test_parts_that_did_not_run_do_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = code_and_output(monkeypatch, PASSED, NOT_RUN)
    assert code == 0
    assert output.splitlines() == [
        "part-0: passed on cpu: all of it",
        "part-1: not run on cpu: no GPU",
        "1 parts passed, 0 failed, 1 did not run; 0 of 2 ran on a GPU",
    ]


def test_an_error_of_a_part_is_a_failure_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(_: torch.device) -> Result:
        raise ValueError("no such thing")

    monkeypatch.setattr(command, "PARTS", (Part("a", "A", "?", broken), *parts(PASSED)))
    place = tmp_path / "page.md"
    place.write_text("<!-- parts --><!-- end of parts -->")
    result = CliRunner().invoke(
        command.main, ["--markdown", str(place)], standalone_mode=False
    )
    assert result.return_value == 1
    assert "ValueError: no such thing" in place.read_text()
    assert "part-0: passed" in result.output


def test_the_page_names_the_device_of_each_part() -> None:
    results = list(zip(parts(PASSED, NOT_RUN), (PASSED, NOT_RUN), strict=True))
    text = command.page(results, {"torch": "2.13"}, date(2026, 11, 23))
    assert "| torch | 2.13 |" in text
    assert "| date | 2026-11-23 |" in text
    assert "| Part 0 | cpu | passed | all of it |" in text
    assert "| Part 1 | cpu | not run | no GPU |" in text
    assert "0 of 2 ran on a GPU" in text
    assert "## Part 1\n\nAbout it.\n\nDevice: cpu. Not run: no GPU." in text
