"""Warm worker processes: started once, reused, replaced when one dies or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from syncverify.backends.messages import Ready
from syncverify.errors import InternalError

START_TIMEOUT_SECONDS = 120.0
_END_TIMEOUT_SECONDS = 5.0
# torch keeps some process groups, with their threads and sockets, beyond their end.
MAX_JOBS_PER_WORKER = 250


class WorkerProcess:
    """One worker process and the connection to it.

    Args:
        module: What it runs; it takes the descriptor of the connection.

    Attributes:
        connection: To the process.
        process: The process.
        num_jobs: How often it was taken from the pool.
    """

    def __init__(self, module: str = "syncverify.backends.worker") -> None:
        self.num_jobs = 0
        self.connection, theirs = Pipe(duplex=True)
        changes = {"PYTHONPATH": _import_path(), "OMP_NUM_THREADS": "1"}
        with _interrupts_blocked():
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **changes},
                stdin=subprocess.DEVNULL,
            )
        theirs.close()

    def await_ready(self) -> None:
        """Wait until the worker has imported what it needs.

        Raises:
            InternalError: It did not start.
        """
        if self.connection.poll(START_TIMEOUT_SECONDS):
            try:
                if isinstance(self.connection.recv(), Ready):
                    return
            except EOFError:
                pass
        self.end()
        raise InternalError(
            f"a worker process did not start within {START_TIMEOUT_SECONDS:.0f} s "
            f"(exit code {self.process.poll()})"
        )

    def end(self) -> None:
        """End the process, however it stands."""
        self.connection.close()
        self.process.kill()
        self.process.wait(_END_TIMEOUT_SECONDS)

    def exit_reason(self) -> str:
        """Say how a process that went away ended."""
        code = self.process.wait(_END_TIMEOUT_SECONDS)
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class WorkerPool:
    """Workers by rank."""

    def __init__(self) -> None:
        self._workers: dict[int, WorkerProcess] = {}

    def take(self, count: int) -> list[WorkerProcess]:
        """Return warm workers for ranks 0..count-1, starting those that are missing."""
        for rank in range(count):
            if (
                rank in self._workers
                and self._workers[rank].num_jobs >= MAX_JOBS_PER_WORKER
            ):
                self.discard(rank)
        missing = [rank for rank in range(count) if rank not in self._workers]
        for rank in missing:
            self._workers[rank] = WorkerProcess()
        for rank in missing:
            self._workers[rank].await_ready()
        taken = [self._workers[rank] for rank in range(count)]
        for worker in taken:
            worker.num_jobs += 1
        return taken

    def discard(self, rank: int) -> None:
        """End a worker; the next `take` starts another in its place."""
        self._workers.pop(rank).end()

    def close(self) -> None:
        """End all workers."""
        for rank in list(self._workers):
            self.discard(rank)


def await_any(
    connections: list[Connection], timeout_seconds: float
) -> list[Connection]:
    """Return the connections that have something to say, none after the timeout."""
    return [c for c in wait(connections, timeout_seconds) if isinstance(c, Connection)]


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let a process that is started inherit that Ctrl-C does not reach it.

    It ignores it, but only once it has imported what that takes.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _import_path() -> str:
    # Workers import what the parent can: the subject may live in its working directory.
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
