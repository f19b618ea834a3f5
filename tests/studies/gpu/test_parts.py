"""Each part runs as far as it can without a GPU, and a page claims nothing about GPUs without one."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

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


# What a part says on a CPU.
PLAYED: dict[str, tuple[Callable[[], Result], str]] = {
    "words": (
        lambda: words.run(CPU, ["backward"]),
        f"{len(BACKWARDS)} words of backward",
    ),
    "searches": (
        lambda: commands.run_searches(CPU, ["ddp"], examples=3),
        "(3 scenarios on gloo, seed 0",
    ),
    "shared device": (
        lambda: shared_device.run(CPU, ["synchronizer"], 3),
        "on the simulated streams of `sim`",
    ),
    "bank": (lambda: bank.run(CPU, 2), ") | not run | not run |"),
    "traces": (lambda: traces.run(CPU, 1), "| current_stream |"),
    "host waits": (lambda: host_waits.run(CPU), "no host wait in"),
    "step time": (lambda: step_time.run(CPU, rounds=3), "times the time of DDP"),
}


@pytest.mark.long
@pytest.mark.parametrize("part", PLAYED)
def test_a_part_is_played_without_a_gpu(part: str) -> None:
    run, says = PLAYED[part]
    result = run()
    assert (result.state, result.device) == ("passed", "cpu")
    assert says in "\n".join([result.summary, *result.lines])


@pytest.mark.slow
def test_a_host_wait_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert host_waits.with_detector(CPU).state == "passed"
    assert modes == ["default", "default", "error", "default"]
    step_of_ours = host_waits.step_of_ours

    def waiting(device: torch.device) -> Any:
        step, *others = step_of_ours(device)

        def wait_once() -> None:
            step()
            if modes[-1] == "error":
                raise RuntimeError("called a synchronizing CUDA operation\nand more")

        return wait_once, *others

    monkeypatch.setattr(host_waits, "step_of_ours", waiting)
    result = host_waits.with_detector(CPU)
    assert result.state == "failed"
    assert result.lines == ("- called a synchronizing CUDA operation",)


PASSED = Result("passed", "cpu", "all of it")
NOT_RUN = Result("not run", "cpu", "no GPU")


def parts(*results: Result) -> tuple[Part, ...]:
    def run(result: Result) -> Callable[[torch.device], Result]:
        return lambda _: result

    return tuple(
        Part(f"part-{n}", f"Part {n}", "About it.", run(result))
        for n, result in enumerate(results)
    )


def test_parts_that_did_not_run_do_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PARTS", parts(PASSED, NOT_RUN))
    result = CliRunner().invoke(command.main, [], standalone_mode=False)
    assert result.return_value == 0
    assert result.output.splitlines() == [
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
