"""Help and bad arguments are answered before torch is imported; so is Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[4]
# Calls that click answers alone, and their exit codes.
LIGHT = {
    "": 2, "--help": 0, "-h": 0, "--version": 0, "run --help": 0, "replay --help": 0, "bank --help": 0,
    "init --help": 0, "init": 2, "init x": 2, "init x --like fsdp": 2,
    "walk": 2, "--fast": 2, "run": 2, "run ddp --fast": 2, "run ddp extra": 2,
    "run ddp --backend mpi": 2, "run ddp --ranks 0": 2, "run ddp --examples -1": 2,
    "run ddp --seed x": 2, "run ddp --time-limit 0": 2, "run ddp --jobs 0": 2,
    "run ddp --json .": 2, "run ddp --require-coverage 101": 2,
    "replay": 2, "replay sv2-x": 2, "replay sv2-x ddp --backend mpi": 2,
    "bank extra": 2, "bank --backend fake": 2, "bank --twin-examples -1": 2,
}  # fmt: skip
CALLS = """
import json, sys
from syncverify import CoverageGap, PropertyViolation, UsageError, check, verify
from syncverify.command.main import main

found = {}
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as left:
        heavy = sorted({"torch", "hypothesis", "rich"} & {*sys.modules})
        found[line] = [left.code, heavy]
print("\\n" + json.dumps(found))
"""


def python(*arguments: str, path: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_help_and_bad_arguments_import_no_torch(tmp_path: Path) -> None:
    """Other slow packages are not imported either, nor by the names that `syncverify` exports."""
    calls = json.dumps([*LIGHT])
    running = python("-c", CALLS, calls, path=str(ROOT), folder=tmp_path)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found == {line: [code, []] for line, code in LIGHT.items()}


def test_interrupt_while_torch_is_imported_is_one_line(tmp_path: Path) -> None:
    slow = "import threading\nprint('importing', flush=True)\nthreading.Event().wait()"
    (tmp_path / "torch.py").write_text(slow)
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    running = python("-m", "syncverify", "run", "ddp", path=path, folder=tmp_path)
    assert running.stdout.readline() == "importing\n"
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "syncverify: interrupted\n")
