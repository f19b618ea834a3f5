"""One search by several processes: each plays its share of the scenarios.

Processes share no state. Each one has its own seed, which follows from the seed of the
search. So the merged result depends on that seed and on the number of processes alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from syncverify.backends.messages import pack_subject
from syncverify.backends.pool import WorkerProcess, await_any
from syncverify.errors import InternalError, SyncverifyError
from syncverify.processes.owner_link import SILENCE_SECONDS, Word, leave_lost
from syncverify.processes.silence import Silences
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.result import Progress, SearchPlan, SearchResult, merged
from syncverify.subjects.subject import Subject

_WORKER = "syncverify.search.parallel_worker"
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The share of one process: subject, from `pack_subject`, name of the backend, plan."""

    subject: bytes
    backend: str
    plan: SearchPlan


@dataclass(frozen=True, slots=True)
class Announcement:
    """The word of a process to its owner, such as the token of the scenario that starts."""

    word: Word
    text: str


@dataclass(frozen=True, slots=True)
class ScenarioPlayed:
    """Progress of a process: one more scenario, and its number of violations so far."""

    num_violations: int


@dataclass(frozen=True, slots=True)
class ViolationMet:
    """Progress of a process: a violation that it had not met before."""

    violation: FoundViolation


@dataclass(frozen=True, slots=True)
class ViolationShrunk:
    """Progress of a process: a violation in the smallest scenario that it could find."""

    violation: FoundViolation


@dataclass(frozen=True, slots=True)
class StopExploring:
    """From the parent: another process has met a violation, and the first one is enough."""


@dataclass(frozen=True, slots=True)
class ShrinkingRun:
    """Progress of a process: one more run to shrink a violation."""

    identity: Identity
    num_runs: int


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """The type and the message of an error that ended a process' share."""

    kind: type[SyncverifyError]
    text: str


Message = (
    Announcement
    | ScenarioPlayed
    | ViolationMet
    | ShrinkingRun
    | ViolationShrunk
    | WorkerFailure
    | SearchResult
)


def search_in_parallel(
    subject: Subject, backend: str, jobs: int, plan: SearchPlan, progress: Progress
) -> SearchResult:
    """Return the merged result of a search with several processes.

    Each process opens the backend of the given name. The plan is that of the whole search.
    `progress` receives the progress of all processes together.

    Raises:
        SyncverifyError: A process raised it; it is raised again here.
    """
    packed = pack_subject(subject)
    plans = list(_shares(plan, jobs))
    with contextlib.ExitStack() as stack:
        workers = []
        # All processes start before the first is awaited: each imports torch for seconds.
        for _ in plans:
            workers.append(WorkerProcess(_WORKER))
            stack.callback(workers[-1].end)
        for worker, share in zip(workers, plans, strict=True):
            worker.await_ready()
            with contextlib.suppress(OSError):  # it ended; `_receive` says by what
                worker.connection.send(SearchJob(packed, backend, share))
        collector = _ResultCollector(
            workers, progress, stop_at_first=plan.stop_at_first
        )
        return merged(collector.results())


def _shares(plan: SearchPlan, jobs: int) -> Iterator[SearchPlan]:
    """Yield the plan of each process; seeds are hashed, so that shares do not overlap."""
    for index in range(min(jobs, plan.num_examples)):
        digest = hashlib.sha256(f"{plan.random_seed}: {index} of {jobs}".encode())
        yield replace(
            plan,
            num_examples=len(range(index, plan.num_examples, jobs)),
            random_seed=int.from_bytes(digest.digest()[:4]),
        )


class _ResultCollector:
    """Receives messages of processes until each has sent its result."""

    def __init__(
        self, workers: list[WorkerProcess], progress: Progress, *, stop_at_first: bool
    ) -> None:
        self._workers = workers
        self._progress = progress
        self._stop_at_first = stop_at_first
        self._results: dict[int, SearchResult] = {}
        self._tokens: dict[int, str] = {}  # of the scenarios that are played now
        self._silences = Silences(SILENCE_SECONDS)
        self._num_played = 0
        self._num_violations = 0

    def results(self) -> list[SearchResult]:
        """Return the results in the order of the processes, not of their ends."""
        indices = {
            worker.connection: index for index, worker in enumerate(self._workers)
        }
        while len(self._results) < len(self._workers):
            waiting = [c for c, index in indices.items() if index not in self._results]
            for connection in await_any(waiting, _POLL_SECONDS):
                self._receive(indices[connection], connection)
            self._look_for_silence()
        return [self._results[index] for index in sorted(self._results)]

    def _receive(self, index: int, connection: Connection) -> None:
        try:
            message: Message = connection.recv()
        except (EOFError, OSError):
            reason = self._workers[index].exit_reason()
            raise self._lost(index, "process_died", f"ended by {reason}") from None
        self._silences.hear(self._workers[index].process.pid)
        match message:
            case Announcement():
                if message.word == "plays":
                    self._tokens[index] = message.text
            case WorkerFailure():
                raise message.kind(message.text)
            case SearchResult():
                self._results[index] = message
                self._silences.forget(self._workers[index].process.pid)
            case ViolationMet():
                self._progress.found(message.violation)
                if self._stop_at_first:
                    self._stop_all()
            case ShrinkingRun():
                self._progress.shrinking(message.identity, message.num_runs)
            case ViolationShrunk():
                self._progress.shrunk(message.violation)
            case ScenarioPlayed():
                self._num_played += 1
                # A lower bound: two processes may have met the same violation.
                self._num_violations = max(self._num_violations, message.num_violations)
                self._progress.played(self._num_played, self._num_violations)

    def _look_for_silence(self) -> None:
        """Find a process in which Python does not run, and from which no word comes."""
        stuck = self._silences.stuck()
        for index, worker in enumerate(self._workers):
            if worker.process.pid == stuck:
                raise self._lost(index, "never_returns", worker.why_silent())

    def _lost(self, index: int, cause: str, how: str) -> InternalError:
        """Leave the verdict on a lost process to the owner, or else return an error."""
        token = self._tokens.get(index, "")
        leave_lost(token, cause, how)
        place = f"; it played {token}" if token else ""
        return InternalError(f"search process {index} {how}{place}")

    def _stop_all(self) -> None:
        """Let all processes end their exploration; the shrinking of what they met goes on."""
        self._stop_at_first = False  # once is enough
        for worker in self._workers:
            with contextlib.suppress(OSError):  # it ended; `_receive` says by what
                worker.connection.send(StopExploring())
