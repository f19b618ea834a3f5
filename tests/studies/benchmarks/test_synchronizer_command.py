"""The command: its output, its refusals, and that no process or file stays behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from studies.benchmarks.synchronizer.__main__ import main

ROOT = Path(__file__).parents[3]
MODELS = {"small", "medium", "large"}


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "studies.benchmarks.synchronizer", *arguments],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def leaves(document: Any) -> list[object]:
    if isinstance(document, dict):
        return [leaf for value in document.values() for leaf in leaves(value)]
    return [document]


def check_models_and_meshes(document: Any) -> None:
    for name in ("step_vs_ddp", "step_vs_ddp_to_none"):
        # Where a compiler is, each model is trained with the hook in C++ as well.
        assert {key.removesuffix(", hook in C++") for key in document[name]} == MODELS
    assert set(document["mesh_vs_sequential"]) == {"8MiB", "4KiB"}
    assert len(document["exposed_vs_ddp"]) == len(MODELS)
    assert "step_vs_d9d" in document


def check_numbers(document: Any) -> None:
    # d9d may not be installed; its numbers are missing then.
    measured = {
        name: value
        for name, value in document.items()
        if "_vs_" in name and "d9d" not in name
    }
    # On a busy machine a round without communication may be the slower one.
    exposed = leaves(measured.pop("exposed_vs_ddp"))
    assert {*map(type, exposed)} <= {float, type(None)}
    assert {*map(type, leaves(measured))} == {float}
    quartiles = [each["quartiles"] for each in document["measures"] if each["value"]]
    assert {*map(bool, quartiles)} == {True}


@pytest.mark.long
def test_command_writes_every_number_and_prints_it_beside_its_target(
    tmp_path: Path,
) -> None:
    running = start("--smoke", "--json", str(tmp_path / "bench.json"))
    out, err = running.communicate()
    assert running.returncode == 0, err
    document = json.loads((tmp_path / "bench.json").read_text())
    check_models_and_meshes(document)
    check_numbers(document)
    assert "<= 0.05 x" in out
    assert len(document["measures"]) == out.count("<= ")


@pytest.mark.nightly
def test_interrupt_leaves_no_process_behind() -> None:
    """The interrupt reaches ranks too, as Ctrl-C does; ranks hold stdout open while they live."""
    running = start("--smoke")
    assert running.stderr is not None
    try:
        for line in running.stderr:
            if line == "measuring steps beside d9d\n":  # so there have been ranks
                break
        os.killpg(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=60)
    except BaseException:
        os.killpg(running.pid, signal.SIGKILL)  # or it would outlive this test as well
        running.communicate()
        raise
    assert running.returncode == 130
    assert (
        err.splitlines()[-1] == "python -m studies.benchmarks.synchronizer: interrupted"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--nosuch"], "No such option '--nosuch'"),
        (["--rounds", "3"], "'--rounds': 3 is not in the range x>=20"),
        (["--json", "nosuch/file"], "'nosuch/file': its folder does not exist"),
        (["--markdown", "nosuch.md"], "no document 'nosuch.md'"),
        (["--smoke", "--markdown", "any.md"], "--smoke measures nothing"),
    ],
)
def test_bad_usage_is_one_line_and_code_2(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["studies.benchmarks.synchronizer", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("python -m studies.benchmarks.synchronizer: ")
    assert complaint in err
    assert err.count("\n") == 1
