"""Each part runs as far as it can without a GPU, and says on which device it ran."""

import pytest
import torch

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
from syncverify.scenario.feature_table import BACKWARDS

CPU = torch.device("cpu")


def test_installation_does_not_run_without_a_gpu() -> None:
    result = installation.run(CPU)
    assert (result.state, result.device) == ("not run", "cpu")
    assert installation.versions()["torch"] == torch.__version__


@pytest.mark.slow
def test_words_are_played_on_the_device() -> None:
    result = words.run(CPU, ["backward"])
    assert (result.state, result.device, result.lines) == ("passed", "cpu", ())
    assert result.summary.startswith(f"{len(BACKWARDS)} words of backward")


@pytest.mark.nightly
def test_modules_and_uses_are_played_on_the_device() -> None:
    result = words.run(CPU, ["module", "use"])
    assert (result.state, result.lines) == ("passed", ())


@pytest.mark.slow
def test_a_wrong_word_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "wrong_in", lambda *_: ["sums differ"])
    result = words.run(CPU, ["backward"])
    assert result.state == "failed"
    assert result.lines[0] == "- `backward=plain`: sums differ"


@pytest.mark.long
def test_searches_run_on_gloo_instead() -> None:
    result = commands.run_searches(CPU, ["ddp"], examples=3)
    assert (result.state, result.device) == ("passed", "cpu")
    assert "(3 scenarios on gloo, seed 0" in result.lines[0]


@pytest.mark.long
def test_a_search_with_a_violation_fails() -> None:
    subject = "syncverify.bugbank.numerics.factors"
    result = commands.run_searches(CPU, [f"{subject}:DividesAgain"], examples=1)
    assert result.state == "failed"


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


@pytest.mark.slow
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
