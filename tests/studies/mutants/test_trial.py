"""The command: a mutant is tried in a new process, and the check that notices it is named."""

import json
import subprocess
from pathlib import Path

import pytest

from studies.mutants.generation import mutants
from tests.warm_python import ROOT, python


def command(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that has not imported the synchronizer yet."""
    return python("-m", "studies.mutants", *options, folder=ROOT)


# Start of the id of one mutant: a stream reads a sum and does not wait for it.
UNAWAITED = "drop_wait-collectives"


def test_one_mutant_is_named() -> None:
    assert sum(mutant.id.startswith(UNAWAITED) for mutant in mutants()) == 1


@pytest.mark.nightly
def test_a_scenario_notices_a_sum_that_nobody_waits_for(tmp_path: Path) -> None:
    written = tmp_path / "mutants.jsonl"
    only = ("--only", UNAWAITED, "--jobs", "1", "--json", str(written))
    ended = command(*only)
    assert ended.returncode == 0, ended.stderr
    entry = json.loads(written.read_text())
    assert entry["killed_by"] == "wait_orders_reads_after_reduce (read_before_reduced)"
    assert entry["examples"] <= 20
    again = command(*only)
    assert again.returncode == 0, again.stderr
    assert entry["id"] not in again.stdout, "a killed mutant is not tried again"
    gone = {**entry, "killed_by": "test_scope.py::test_that_is_gone"}
    written.write_text(json.dumps(gone))
    again = command(*only, "--again")
    assert again.returncode == 0, again.stderr
    found = json.loads(written.read_text())
    assert found["killed_by"] == entry["killed_by"], (
        "a test that is gone notices nothing"
    )


@pytest.mark.long
def test_an_id_that_nobody_has_is_one_line() -> None:
    ended = command("--only", "drop_everything")
    assert ended.returncode == 2
    assert ended.stderr == (
        "python -m studies.mutants: no mutant has an id that starts with 'drop_everything'\n"
    )
