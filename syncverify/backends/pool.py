"""The pool of worker processes: started once, reused, replaced after a death or a hang."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from syncverify.backends.messages import Ready
from syncverify.errors import InternalError
from syncverify.processes.child_process import interrupts_blocked
from syncverify.processes.forked_process import start_process
from syncverify.processes.process_state import (
    Work,
    is_stopped,
    processor_seconds,
    why_silent,
    work_of_descendants,
)
from syncverify.processes.stack_dump import take_dump
from syncverify.trace.source_lines import CodeLine, frames_in_dump

_START_WINDOW_SECONDS = 5.0
_MAX_START_WINDOWS = 24  # on a busy machine, an import of torch takes a minute
_MAX_STARTS = 3
_END_TIMEOUT_SECONDS = 5.0
# torch's caches of operators grow with each new shape.
MAX_JOBS_PER_WORKER = 250


class WorkerProcess:
    """One worker process and the connection to it.

    Args:
        module: Name of a module; its `main` gets the descriptor of the connection.
        template: Number of the template that forks the process; see
            Note [Processes are forked from a template].

    Attributes:
        connection: The connection to the process.
        process: The process.
        num_jobs: Number of times that the pool gave the worker away.
    """

    def __init__(
        self, module: str = "syncverify.backends.worker", template: int = 0
    ) -> None:
        self.num_jobs = 0
        self.connection, theirs = Pipe(duplex=True)
        reading, self._lifeline = Pipe(duplex=False)
        with theirs, reading, interrupts_blocked():
            self.process = start_process(
                module, self.connection, theirs.fileno(), reading.fileno(), template
            )

    def await_ready(self) -> None:
        """Wait until the worker has imported its modules.

        Raises:
            InternalError: The worker did not start.
        """
        how = f"it took more than {_MAX_START_WINDOWS * _START_WINDOW_SECONDS:.0f} s"
        for _ in range(_MAX_START_WINDOWS):
            if self.connection.poll(_START_WINDOW_SECONDS):
                try:
                    if isinstance(self.connection.recv(), Ready):
                        return
                except (EOFError, OSError):
                    how = f"it ended by {self.exit_reason()}"
                    break
            if self.is_stopped():
                how = "a signal has stopped it"
                break
        self.end()
        raise InternalError(f"a worker process did not start: {how}")

    def end(self) -> None:
        """End the process, and all that the subject started there, by SIGKILL."""
        self.connection.close()
        # The group lives as long as a child of the subject does, and its number as long.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._lifeline.close()
        # A process that is not forked yet ends once it is: its connection is closed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_TIMEOUT_SECONDS)

    def has_ended(self) -> bool:
        """Tell whether the process is gone."""
        return self.process.poll() is not None

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def is_stopped(self) -> bool:
        """Tell whether a signal keeps the process from running."""
        return is_stopped(self.pid)

    def why_silent(self) -> str:
        """Say why the process does not answer."""
        return why_silent(self.pid)

    def lines_of_hang(self) -> list[CodeLine]:
        """Return the subject's lines in a process that does not answer, and end it.

        The result is an empty list if a signal has stopped the process.
        """
        if self.is_stopped():
            return []
        return frames_in_dump(take_dump(self.pid, self.connection.fileno()))

    def processor_seconds(self) -> float:
        """Return the processor time that the process has used."""
        return processor_seconds(self.pid)

    def work_of_descendants(self) -> Work:
        """Return the work of the processes that the process has started."""
        return work_of_descendants(self.pid)

    def exit_reason(self) -> str:
        """Return how a process ended that cannot be heard: its signal or its exit code."""
        try:
            code = self.process.wait(_END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return "the end of its connection"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class WorkerPool:
    """Workers by rank."""

    def __init__(self) -> None:
        self._workers: dict[int, WorkerProcess] = {}

    def take(self, count: int) -> list[WorkerProcess]:
        """Return the workers of ranks 0..count-1, in order, each ready for a job."""
        for rank in range(count):
            if rank in self._workers and not _is_usable(self._workers[rank]):
                self.discard(rank)
        for number in range(1, _MAX_STARTS + 1):
            error = self._start(
                rank for rank in range(count) if rank not in self._workers
            )
            if error is not None and number == _MAX_STARTS:
                raise error
        taken = [self._workers[rank] for rank in range(count)]
        for worker in taken:
            worker.num_jobs += 1
        return taken

    def _start(self, ranks: Iterable[int]) -> InternalError | None:
        """Start workers side by side; return the error of one that did not start."""
        started = {rank: WorkerProcess(template=rank % 2) for rank in ranks}
        self._workers.update(started)
        error = None
        for rank, worker in started.items():
            try:
                worker.await_ready()
            except InternalError as failed:
                error = failed
                del self._workers[rank]
        return error

    def discard(self, rank: int) -> None:
        """End the worker of a rank; the next `take` starts another in its place."""
        self._workers.pop(rank).end()

    def close(self) -> None:
        """End all workers."""
        for rank in list(self._workers):
            self.discard(rank)


def _is_usable(worker: WorkerProcess) -> bool:
    is_worn = worker.num_jobs >= MAX_JOBS_PER_WORKER
    return not (is_worn or worker.has_ended() or worker.is_stopped())


def await_any(
    connections: list[Connection], timeout_seconds: float
) -> list[Connection]:
    """Wait; return the connections with a message or an end, none after the timeout."""
    return [c for c in wait(connections, timeout_seconds) if isinstance(c, Connection)]
