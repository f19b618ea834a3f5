"""The `gloo` backend: ranks are warm processes that talk over real gloo."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch.distributed as dist

from syncverify.backends.faults import (
    answers_fault,
    awaits_peers,
    launches_of,
    positions,
    stall_fault,
    unmatched_fault,
)
from syncverify.backends.messages import (
    Answer,
    Job,
    Status,
    StatusRequest,
    pack_subject,
    unpack_result,
)
from syncverify.backends.pool import WorkerPool, WorkerProcess, await_any
from syncverify.errors import InternalError, SubjectError
from syncverify.run import Fault, RankRun, Run
from syncverify.scenario import Scenario
from syncverify.subject import Subject

HANG_TIMEOUT_SECONDS = 5.0
_AFTERSHOCK_SECONDS = 2.0
_STATUS_SECONDS = 5.0
_MAX_SLOW_ROUNDS = 12


@dataclass(slots=True)
class _Playing:
    """One scenario under way on its workers.

    Attributes:
        workers: By rank.
        answers: By rank, as they arrive.
        died: How worker processes ended that went away, by rank.
    """

    workers: list[WorkerProcess]
    answers: dict[int, Answer] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)

    def pending(self) -> list[int]:
        """List the ranks that have not ended."""
        ranks = range(len(self.workers))
        return [
            rank for rank in ranks if rank not in self.answers and rank not in self.died
        ]

    def has_fault(self) -> bool:
        """Tell whether some rank ended badly, so that others may never end."""
        return bool(self.died) or any(
            a.fault or a.harness_error or a.usage_error for a in self.answers.values()
        )


class GlooBackend:
    """Plays scenarios on real processes.

    Args:
        hang_timeout_seconds: How long all ranks may go without progress before the run
            is ended.
    """

    name = "gloo"

    def __init__(self, *, hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS) -> None:
        self._hang_timeout_seconds = hang_timeout_seconds
        self._pool = WorkerPool()
        self._store: dist.TCPStore | None = None
        self._num_jobs = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario on one worker process per rank.

        Args:
            scenario: What to play.
            subject: The synchronizer under test; pickled to the workers.

        Returns:
            What came out.

        Raises:
            InternalError: The harness failed in a worker.
            SubjectError: What the factory made lacks a part of the subject API.
        """
        playing = self._start(scenario, subject)
        stalled = self._collect(playing)
        fault = self._fault(playing, stalled)
        for rank in {*playing.pending(), *playing.died}:
            self._pool.discard(rank)
        return Run(self.name, tuple(_results(playing)), fault)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _start(self, scenario: Scenario, subject: Subject) -> _Playing:
        if self._store is None:
            self._store = dist.TCPStore(
                "127.0.0.1", 0, is_master=True, wait_for_workers=False
            )
        workers = self._pool.take(scenario.mesh.num_ranks)
        packed = pack_subject(subject)
        self._num_jobs += 1
        for rank, worker in enumerate(workers):
            worker.connection.send(
                Job(self._num_jobs, scenario.to_json(), packed, rank, self._store.port)
            )
        return _Playing(workers)

    def _collect(self, playing: _Playing) -> dict[int, Status]:
        """Gather answers until all ranks ended or none makes progress.

        Returns:
            Where the ranks stand that were given up, by rank; empty if none was.
        """
        progress, num_slow_rounds = -1, 0
        while playing.pending():
            patience = (
                _AFTERSHOCK_SECONDS
                if playing.has_fault()
                else self._hang_timeout_seconds
            )
            if self._receive(playing, patience):
                continue
            statuses = self._ask(playing)
            total = sum(status.progress for status in statuses.values())
            # A rank outside of the subject's lines starts up or imports: it is slow, and
            # on a busy machine that may take a while.
            is_slow = not all(status.lines for status in statuses.values())
            num_slow_rounds += is_slow
            may_wait = is_slow and num_slow_rounds < _MAX_SLOW_ROUNDS
            if playing.has_fault() or (total == progress and not may_wait):
                return statuses
            progress = total
        return {}

    def _receive(self, playing: _Playing, patience_seconds: float) -> bool:
        """Take in what workers say; False if none said anything."""
        ranks = {playing.workers[rank].connection: rank for rank in playing.pending()}
        speaking = await_any(list(ranks), patience_seconds)
        for connection in speaking:
            rank = ranks[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                playing.died[rank] = playing.workers[rank].exit_reason()
                continue
            if isinstance(message, Answer):
                playing.answers[rank] = message
        return bool(speaking)

    def _ask(self, playing: _Playing) -> dict[int, Status]:
        """Ask the pending ranks where they stand; an answer may arrive instead."""
        statuses: dict[int, Status] = {}
        for rank in playing.pending():
            connection = playing.workers[rank].connection
            try:
                connection.send(StatusRequest())
                while connection.poll(_STATUS_SECONDS):
                    message = connection.recv()
                    if isinstance(message, Status):
                        statuses[rank] = message
                        break
                    playing.answers[rank] = message
            except (EOFError, OSError):
                playing.died[rank] = playing.workers[rank].exit_reason()
        return statuses

    def _fault(self, playing: _Playing, stalled: dict[int, Status]) -> Fault | None:
        for rank, answer in sorted(playing.answers.items()):
            if answer.usage_error is not None:
                raise SubjectError(answer.usage_error)
            if answer.harness_error is not None:
                raise InternalError(f"rank {rank}:\n{answer.harness_error}")
        if playing.died:
            return _death(playing.died)
        fault = answers_fault(playing.answers)
        if fault is not None:
            return fault
        return _stall(playing, stalled) if stalled else None


def _results(playing: _Playing) -> list[RankRun]:
    ranks = range(len(playing.workers))
    answers = [playing.answers.get(rank) for rank in ranks]
    return [
        unpack_result(a.result) if a is not None and a.result else RankRun()
        for a in answers
    ]


def _death(died: dict[int, str]) -> Fault:
    ranks = tuple(sorted(died))
    lines = tuple(f"rank {rank}: ended by {died[rank]}" for rank in ranks)
    return Fault("process_died", ranks, f"the process of rank {ranks[0]} died", lines)


def _stall(playing: _Playing, stalled: dict[int, Status]) -> Fault:
    """Tell a rank that never came back from ranks that wait for an absent one."""
    finished = set(playing.answers)
    issued = {rank: status.launches for rank, status in stalled.items()}
    launches = {**issued, **launches_of(playing.answers)}
    # The innermost line is the subject's also where it calls C++, as in `work.wait()`:
    # then it waits for the ranks that it could not meet yet.
    own_loop = [
        rank
        for rank, status in stalled.items()
        if not (status.in_torch or awaits_peers(rank, launches))
    ]
    if own_loop:
        rank = own_loop[0]
        return stall_fault("never_returns", (rank,), stalled[rank].lines)
    everyone = tuple(sorted(launches))
    return unmatched_fault(launches, finished) or stall_fault(
        "deadlock", everyone, positions(launches, finished)
    )
