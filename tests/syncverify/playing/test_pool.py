"""Worker processes are started, and end by their parent or with it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncverify.errors import InternalError
from syncverify.playing import workers
from syncverify.playing.workers import WorkerPool, await_ready
from syncverify.processes.forked_process import start
from syncverify.processes.supervised import Supervised


@pytest.mark.long
def test_interrupt_does_not_reach_a_worker_that_is_not_ready_yet() -> None:
    worker = there()
    try:
        worker.signal(signal.SIGINT)
        await_ready(worker)
    finally:
        worker.end()


def there() -> Supervised:
    """Start a worker, and wait until its template has forked it."""
    worker = start(workers.__name__)
    while worker.process.leader is None:
        os.sched_yield()
    return worker


class Starting:
    """A worker process whose start goes wrong in one way, or not at all."""

    def __init__(self, plan: Iterator[str]) -> None:
        self.num_jobs = 0
        self.fails = next(plan)


def await_start(worker: Any) -> None:
    if worker.fails:
        raise InternalError(worker.fails)


def take_two(monkeypatch: pytest.MonkeyPatch, *plan: str) -> list[Any]:
    left = iter(plan)
    monkeypatch.setattr(workers, "start", lambda *_, **__: Starting(left))
    monkeypatch.setattr(workers, "await_ready", await_start)
    return [*WorkerPool().take(2)]


def test_worker_that_does_not_start_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = take_two(monkeypatch, "", "it is stopped", "it is stopped", "")
    assert [worker.num_jobs for worker in taken] == [1, 1]


def test_workers_that_never_start_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InternalError, match="it is stopped for good"):
        take_two(monkeypatch, "", "it ended", "it ended", "it is stopped for good")


@pytest.mark.slow
def test_worker_that_is_stopped_while_it_starts_is_not_awaited() -> None:
    worker = there()
    worker.signal(signal.SIGSTOP)
    with pytest.raises(InternalError) as caught:
        await_ready(worker)
    assert str(caught.value) == (
        "a worker process did not start: a signal has stopped it"
    )
    assert worker.has_ended()


KEEPS_THE_GIL = "import re; re.match('(a+)+$', 'a' * 99 + 'b')"
KILLS_ITSELF = """
import os, signal
from syncverify.processes.forked_process import start

worker = start("keeps_the_gil")
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
