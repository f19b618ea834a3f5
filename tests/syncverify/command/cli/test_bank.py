"""The command `bank`: output, file and exit code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
QUICK = ("--only", "size1-group-self-add", "--twin-examples", "2")


@pytest.mark.slow
def test_entry_is_played_reported_and_written(call: Call) -> None:
    outcome = call("bank", *QUICK, "--json", "bank.json")
    assert (outcome.code, outcome.err) == (0, "")
    first, *_ = outcome.out.splitlines()
    assert first.startswith("[1 of 1] size1-group-self-add: caught by unreduced_")
    (row,) = (line for line in outcome.out.splitlines() if "Megatron" in line)
    assert row.split()[:5] == [
        "size1-group-self-add",
        "NVIDIA/Megatron-LM#6660",
        "unreduced_stay_local",
        "plain",
        "sim",
    ]
    assert row.rstrip().endswith("silent over 2")
    assert "caught: 1 of 1 (100.0 %)\n" in outcome.out
    written = json.loads(Path("bank.json").read_text())
    assert (written["version"], written["seed"]) == (1, 0)
    (entry,) = written["entries"]
    assert entry["caught"]["cause"] == "scaled"


def test_what_is_missed_fails(call: Call) -> None:
    """The only scenario has one rank, where nothing has to be reduced."""
    outcome = call(
        "bank", "--only", "work-handle-empty", "--examples", "1", "--twin-examples", "0"
    )
    assert outcome.code == 1
    assert "work-handle-empty: MISSED in 1 scenario" in outcome.out
    assert "caught: 0 of 1 (0.0 %)\n" in outcome.out


def test_what_a_backend_cannot_play_is_named(call: Call) -> None:
    outcome = call("bank", "--only", "final-join-missing", "--backend", "gloo")
    assert outcome.code == 2
    assert outcome.complaint == (
        "nothing to play on gloo: final-join-missing takes streams from torch.cuda"
    )


def test_an_unknown_defect_is_refused_in_one_line(call: Call) -> None:
    outcome = call("bank", "--only", "work-handle-emty")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.complaint == (
        "unknown defect 'work-handle-emty': did you mean work-handle-empty?"
    )
