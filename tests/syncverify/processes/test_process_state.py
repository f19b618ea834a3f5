"""The work of descendants: of those that live, of theirs, and of those that have ended."""

import os
import subprocess
import sys
from dataclasses import dataclass, field

import psutil
import pytest

from syncverify.processes import process_state
from syncverify.processes.process_state import LocalProcess, Work

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
# A process that has a child of its own and waits for it.
PARENT = [sys.executable, "-S", "-c", f"import subprocess\nsubprocess.run({WORKER})"]


@pytest.mark.parametrize("command", [WORKER, PARENT])
@pytest.mark.slow
def test_the_work_of_descendants_counts_while_they_live_and_when_they_have_ended(
    command: list[str],
) -> None:
    before = LocalProcess(os.getpid()).work_of_descendants().seconds
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert (
            LocalProcess(os.getpid()).work_of_descendants().seconds
            > before + COUNTED_SECONDS
        )
    assert (
        LocalProcess(os.getpid()).work_of_descendants().seconds
        > before + COUNTED_SECONDS
    )


@dataclass
class Shown:
    """A process as psutil shows it."""

    times: tuple[float, ...]
    state: str = psutil.STATUS_SLEEPING
    descendants: list["Shown"] = field(default_factory=list)

    def cpu_times(self) -> tuple[float, ...]:
        return self.times

    def status(self) -> str:
        return self.state

    def children(self, *, recursive: bool) -> list["Shown"]:
        assert recursive
        return self.descendants


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (psutil.STATUS_RUNNING, True),
        (psutil.STATUS_DISK_SLEEP, True),
        (psutil.STATUS_ZOMBIE, False),
    ],
)
def test_a_descendant_that_waits_for_a_processor_is_ready(
    monkeypatch: pytest.MonkeyPatch, state: str, *, expected: bool
) -> None:
    """Times: of the user and of the kernel, then the same of ended children, and of a disk."""
    found = [Shown((0.01, 0.02, 0.03, 0.04, 9.0)), Shown((0.05, 0, 0, 0, 9.0), state)]
    parent = Shown((1.0, 1.0, 0.3, 0.4, 9.0), psutil.STATUS_RUNNING, found)
    monkeypatch.setattr(process_state.psutil, "Process", lambda _: parent)
    assert LocalProcess(1).work_of_descendants() == Work(
        pytest.approx(0.85), is_ready=expected
    )


def test_a_process_that_is_gone_has_no_descendants() -> None:
    assert LocalProcess(2**22 + 1).work_of_descendants() == Work()
