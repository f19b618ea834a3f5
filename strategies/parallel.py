"""One search, done by several processes: each plays its share of the examples.

Processes share nothing. Each has a seed of its own, which follows from the seed of the
search, and so the merged result depends on that seed and on the number of processes alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from strategies.judge import Identity
from strategies.search_result import Progress, SearchPlan, SearchResult, merged
from syncverify.backends.messages import pack_subject
from syncverify.backends.pool import WorkerProcess, await_any
from syncverify.errors import InternalError, SyncverifyError
from syncverify.subject import Subject

_WORKER = "strategies.search_worker"
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SearchJob:
    """One process' share of a search.

    Attributes:
        subject: From `pack_subject`.
        backend: Name of the backend.
        plan: What to search.
    """

    subject: bytes
    backend: str
    plan: SearchPlan


@dataclass(frozen=True, slots=True)
class Played:
    """One more scenario was played; so many violations were met by now."""

    num_violations: int


@dataclass(frozen=True, slots=True)
class Shrinking:
    """One more scenario was played to make a violation smaller."""

    identity: Identity
    num_runs: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The share could not be searched.

    Attributes:
        kind: Type of the error.
        text: What it says.
    """

    kind: type[SyncverifyError]
    text: str


Message = Played | Shrinking | Failed | SearchResult


def search_in_parallel(
    subject: Subject, backend: str, jobs: int, plan: SearchPlan, progress: Progress
) -> SearchResult:
    """Search for violations with several processes.

    Args:
        subject: The synchronizer under test.
        backend: Name of the backend; each process opens its own.
        jobs: Number of processes.
        plan: What to search, all processes together.
        progress: Told how it goes on.

    Returns:
        What was covered and found, by all of them.

    Raises:
        SyncverifyError: Raised in a process, and raised again here.
    """
    packed = pack_subject(subject)
    plans = list(_shares(plan, jobs))
    with contextlib.ExitStack() as stack:
        workers = []
        for _ in plans:
            workers.append(WorkerProcess(_WORKER))
            stack.callback(workers[-1].end)
        for worker, share in zip(workers, plans, strict=True):
            worker.await_ready()
            worker.connection.send(SearchJob(packed, backend, share))
        return merged(_Collecting(workers, progress).results())


def _shares(plan: SearchPlan, jobs: int) -> Iterator[SearchPlan]:
    for index in range(min(jobs, plan.num_examples)):
        digest = hashlib.sha256(f"{plan.random_seed}: {index} of {jobs}".encode())
        yield replace(
            plan,
            num_examples=len(range(index, plan.num_examples, jobs)),
            random_seed=int.from_bytes(digest.digest()[:4]),
        )


class _Collecting:
    """Listens to processes until all have a result."""

    def __init__(self, workers: list[WorkerProcess], progress: Progress) -> None:
        self._workers = workers
        self._progress = progress
        self._results: dict[int, SearchResult] = {}
        self._num_played = 0
        self._num_violations = 0

    def results(self) -> list[SearchResult]:
        """Return what the processes found, in their order."""
        indices = {
            worker.connection: index for index, worker in enumerate(self._workers)
        }
        while len(self._results) < len(self._workers):
            waiting = [c for c, index in indices.items() if index not in self._results]
            for connection in await_any(waiting, _POLL_SECONDS):
                self._take(indices[connection], connection)
        return [self._results[index] for index in sorted(self._results)]

    def _take(self, index: int, connection: Connection) -> None:
        try:
            message: Message = connection.recv()
        except (EOFError, OSError):
            reason = self._workers[index].exit_reason()
            raise InternalError(f"search process {index} ended by {reason}") from None
        if isinstance(message, Failed):
            raise message.kind(message.text)
        if isinstance(message, SearchResult):
            self._results[index] = message
        elif isinstance(message, Shrinking):
            self._progress.shrinking(message.identity, message.num_runs)
        else:
            self._num_played += 1
            self._num_violations = max(self._num_violations, message.num_violations)
            self._progress.played(self._num_played, self._num_violations)
