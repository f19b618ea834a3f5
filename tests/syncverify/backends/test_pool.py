"""Worker processes are started, and end by their parent or with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from syncverify.backends.pool import WorkerProcess


@pytest.mark.long
def test_interrupt_does_not_reach_a_worker_that_is_not_ready_yet() -> None:
    worker = WorkerProcess()
    try:
        worker.process.send_signal(signal.SIGINT)
        worker.await_ready()
    finally:
        worker.end()


def test_interrupts_are_blocked_for_no_longer_than_a_start() -> None:
    worker = WorkerProcess()
    worker.end()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


KEEPS_THE_GIL = "import re; re.match('(a+)+$', 'a' * 99 + 'b')"
KILLS_ITSELF = """
import os, signal
from syncverify.backends.pool import WorkerProcess

worker = WorkerProcess("keeps_the_gil")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="SIGIO ends no process elsewhere")
def test_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """Even where no thread of the worker runs; it holds stdout open while it lives."""
    (tmp_path / "keeps_the_gil.py").write_text(KEEPS_THE_GIL)
    path = os.pathsep.join([*filter(None, sys.path), str(tmp_path)])
    parent = subprocess.run(
        [sys.executable, "-c", KILLS_ITSELF],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert (parent.returncode, parent.stdout) == (-signal.SIGKILL, b"")
