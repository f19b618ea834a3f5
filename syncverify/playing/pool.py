"""The pool of worker processes: started once, reused, replaced after a death or a hang."""

from __future__ import annotations

from collections.abc import Iterable

from syncverify.errors import InternalError
from syncverify.playing.messages import Ready
from syncverify.processes.forked_process import start
from syncverify.processes.silence import START_SECONDS
from syncverify.processes.supervised import HungUp, Supervised, attend

_MAX_STARTS = 3
_WORKER = "syncverify.playing.worker"
# torch's caches of operators grow with each new shape.
MAX_JOBS_PER_WORKER = 250


def await_ready(worker: Supervised) -> None:
    """Wait until a worker has imported its modules.

    Raises:
        InternalError: The worker did not start.
    """
    how = ""
    while not how:
        words = [word for _, word in attend([worker])]
        if Ready() in words:
            return
        if HungUp() in words:
            how = f"it ended by {worker.exit_reason()}"
        elif worker.is_stopped():
            how = "a signal has stopped it"
        elif worker.silence.seconds > START_SECONDS:
            how = f"it took more than {START_SECONDS:.0f} s"
    worker.end()
    raise InternalError(f"a worker process did not start: {how}")


class WorkerPool:
    """Workers by rank."""

    def __init__(self, module: str = _WORKER) -> None:
        self._module = module
        self._workers: dict[int, Supervised] = {}

    def take(self, count: int) -> list[Supervised]:
        """Return the workers of ranks 0..count-1, in order, each ready for a job.

        Raises:
            InternalError: A worker did not start, several times.
        """
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
        started = {rank: start(self._module, template=rank % 2) for rank in ranks}
        self._workers.update(started)
        error = None
        for rank, worker in started.items():
            try:
                await_ready(worker)
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


def _is_usable(worker: Supervised) -> bool:
    is_worn = worker.num_jobs >= MAX_JOBS_PER_WORKER
    return not (is_worn or worker.has_ended() or worker.is_stopped())
