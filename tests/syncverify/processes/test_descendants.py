"""The work of descendants: of those that live, of theirs, and of those that have ended."""

import os
import subprocess
import sys

import pytest

from syncverify.processes import descendants, process_state
from syncverify.processes.descendants import Work, work_of_descendants

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other kernels show no children"
)

SECONDS = 0.2
COUNTED_SECONDS = 0.1  # the kernel rounds the times of each process down
WORKS_AND_WAITS = f"""
import sys, time
while time.process_time() < {SECONDS}:
    pass
print(flush=True)
sys.stdin.read()
"""
WORKER = [sys.executable, "-S", "-c", WORKS_AND_WAITS]
# The first has a child of its own and waits for it.
PARENT = [sys.executable, "-S", "-c", f"import subprocess\nsubprocess.run({WORKER})"]


@pytest.mark.parametrize("command", [WORKER, PARENT])
@pytest.mark.slow
def test_the_work_of_descendants_counts_while_they_live_and_when_they_have_ended(
    command: list[str],
) -> None:
    before = work_of_descendants(os.getpid()).seconds
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert work_of_descendants(os.getpid()).seconds > before + COUNTED_SECONDS
    assert work_of_descendants(os.getpid()).seconds > before + COUNTED_SECONDS


def test_a_descendant_that_waits_for_a_processor_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """State, then times of the process and of its ended children, in hundredths."""
    processes = {1: "S 100 100 30 40", 2: "S 1 2 3 4", 3: "R 5 0 0 0"}
    parents = {1: [2], 2: [3], 3: list[int]()}
    nothing = ["0"] * 10

    def fields(pid: int) -> list[str]:
        state, *times = processes[pid].split()
        return [state, *nothing, *times]

    monkeypatch.setattr(process_state, "_fields", fields)
    monkeypatch.setattr(process_state.os, "sysconf", lambda _: 100)
    monkeypatch.setattr(descendants, "children", parents.__getitem__)
    assert work_of_descendants(1) == Work(pytest.approx(0.85), is_ready=True)
    processes[3] = "Z 5 0 0 0"
    assert work_of_descendants(1) == Work(pytest.approx(0.85), is_ready=False)


def test_a_process_that_is_gone_has_no_descendants() -> None:
    assert work_of_descendants(2**22 + 1) == Work()
