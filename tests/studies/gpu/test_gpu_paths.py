"""Lines of parts that run only on a GPU, played with stand-ins of its streams and events."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from studies.gpu import bank, host_waits, traces
from studies.gpu.real_streams.lanes import KINDS, Kind
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def verdicts(
    scenario: Scenario, subject: Subject, _: torch.device
) -> Iterator[tuple[Kind | None, list[str]]]:
    is_defect = "twin" not in subject.name
    for slow in (None, *KINDS):
        yield slow, ["a_property (a cause)"] if is_defect and slow == "main" else []


@pytest.mark.slow
def test_bank_names_the_slow_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank, "verdicts_on_streams", verdicts)
    result = bank.run(CUDA, 1)
    assert (result.state, result.device) == ("passed", "cuda")
    assert result.lines[2].endswith("| a_property (a cause), slow: main | - |")
    assert (
        result.summary == "1 defects and twins on real streams; 1 gave a wrong number"
    )


@pytest.mark.slow
def test_traces_compare_operators_on_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    played = traces.play_on_streams
    monkeypatch.setattr(
        traces, "play_on_streams", lambda *given: played(*given[:2], CPU)
    )
    result = traces.run(CUDA, 1)
    assert result.device == "cuda"
    assert result.lines[2].startswith("| 0 | current_stream | ")


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
