"""The `gloo` backend: ranks are worker processes with a real gloo process group."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch.distributed as dist

from syncverify.backends.faults import (
    awaits_peers,
    launches_of,
    outcomes_fault,
    positions,
    stall_fault,
    unmatched_fault,
)
from syncverify.backends.messages import (
    Job,
    JobOutcome,
    Status,
    StatusRequest,
    pack_subject,
    unpack_result,
)
from syncverify.backends.pool import WorkerPool, WorkerProcess, await_any
from syncverify.errors import InternalError, SubjectError
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault, RankRun, Run

HANG_TIMEOUT_SECONDS = 5.0
_AFTERSHOCK_SECONDS = 2.0
_STATUS_SECONDS = 5.0
_MAX_SLOW_ROUNDS = 12


@dataclass(slots=True)
class _Playing:
    """One scenario that workers are playing.

    Attributes:
        workers: One for each rank, in rank order.
        outcomes: The outcomes that arrived, by rank.
        died: The signal or exit code of each worker that died, by rank.
    """

    workers: list[WorkerProcess]
    outcomes: dict[int, JobOutcome] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)

    def pending(self) -> list[int]:
        """Return the ranks that have a live worker and no outcome."""
        ended = {*self.outcomes, *self.died}
        return [rank for rank in range(len(self.workers)) if rank not in ended]

    def has_fault(self) -> bool:
        """Tell whether a rank failed, so that others may never end."""
        return bool(self.died) or any(
            each.fault or each.harness_error or each.usage_error
            for each in self.outcomes.values()
        )


class GlooBackend:
    """Plays scenarios on real processes.

    Args:
        hang_timeout_seconds: Time without progress of any rank after which the run is
            ended.
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
            scenario: The scenario to play.
            subject: The synchronizer under test; pickled for the workers.

        Returns:
            The run.

        Raises:
            InternalError: The harness failed in a worker.
            SubjectError: The instance that the factory made lacks a part of the subject API.
        """
        playing = self._start(scenario, subject)
        stalled = self._collect(playing)
        fault = self._fault(playing, stalled)
        for rank in {*playing.pending(), *playing.died}:
            self._pool.discard(rank)
        ranks = range(len(playing.workers))
        ended = {r: unpack_result(each.result) for r, each in playing.outcomes.items()}
        return Run(self.name, tuple(ended.get(r) or RankRun() for r in ranks), fault)

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
        """Gather outcomes; return the status of each rank that makes no progress."""
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
            # Without a line of the subject on its stack, a rank starts up or imports. On a
            # busy machine this takes long, and is no hang.
            is_slow = not all(status.lines for status in statuses.values())
            num_slow_rounds += is_slow
            may_wait = is_slow and num_slow_rounds < _MAX_SLOW_ROUNDS
            if playing.has_fault() or (total == progress and not may_wait):
                return statuses
            progress = total
        return {}

    def _receive(self, playing: _Playing, patience_seconds: float) -> bool:
        """Receive outcomes and deaths; return False if none came within the time."""
        ranks = {playing.workers[rank].connection: rank for rank in playing.pending()}
        ready = await_any(list(ranks), patience_seconds)
        for connection in ready:
            rank = ranks[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                playing.died[rank] = playing.workers[rank].exit_reason()
                continue
            if isinstance(message, JobOutcome):
                playing.outcomes[rank] = message
        return bool(ready)

    def _ask(self, playing: _Playing) -> dict[int, Status]:
        """Request the status of each pending rank; an outcome may arrive instead."""
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
                    playing.outcomes[rank] = message
            except (EOFError, OSError):
                playing.died[rank] = playing.workers[rank].exit_reason()
        return statuses

    def _fault(self, playing: _Playing, stalled: dict[int, Status]) -> Fault | None:
        for rank, outcome in sorted(playing.outcomes.items()):
            if outcome.usage_error is not None:
                raise SubjectError(outcome.usage_error)
            if outcome.harness_error is not None:
                raise InternalError(f"rank {rank}:\n{outcome.harness_error}")
        if playing.died:
            return _death(playing.died)
        fault = outcomes_fault(playing.outcomes)
        if fault is not None:
            return fault
        return _stall(playing, stalled) if stalled else None


def _death(died: dict[int, str]) -> Fault:
    ranks = tuple(sorted(died))
    lines = tuple(f"rank {rank}: ended by {died[rank]}" for rank in ranks)
    return Fault("process_died", ranks, f"the process of rank {ranks[0]} died", lines)


def _stall(playing: _Playing, stalled: dict[int, Status]) -> Fault:
    """Tell a rank in an endless loop from ranks that wait for an absent one."""
    finished = set(playing.outcomes)
    issued = {rank: status.launches for rank, status in stalled.items()}
    launches = {**issued, **launches_of(playing.outcomes)}
    # The innermost Python line belongs to the subject also while it calls C++, as in
    # `work.wait()`. A rank there has issued a collective that a peer has not.
    own_loop = [
        rank
        for rank, status in stalled.items()
        if not (status.in_torch or awaits_peers(rank, launches))
    ]
    if own_loop:
        rank = own_loop[0]
        return stall_fault("never_returns", (rank,), stalled[rank].lines)
    all_ranks = tuple(sorted(launches))
    return unmatched_fault(launches, finished) or stall_fault(
        "deadlock", all_ranks, positions(launches, finished)
    )
