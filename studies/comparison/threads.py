"""torch's threaded process group, in a process that can be ended.

Threads that wait for a rank which never comes cannot be ended. So a worker process runs
the threads, and the backend that owns the process sets a time limit.
"""

import queue
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

from stand_ins.threaded_rank import play_threaded_rank
from syncverify.backends.faults import raised_fault
from syncverify.backends.messages import (
    pack_result,
    pack_subject,
    unpack_result,
    unpack_subject,
)
from syncverify.backends.pool import WorkerProcess
from syncverify.errors import InternalError
from syncverify.program.subject_error import SubjectRaisedError
from syncverify.scenario.scenario import Scenario
from syncverify.sim.network.threaded_world import thread_local_world
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault, RankRun, Run

HANG_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ThreadsJob:
    """Play one scenario: its JSON, and the pickled subject."""

    scenario: dict[str, Any]
    subject: bytes


@dataclass(frozen=True, slots=True)
class ThreadsAnswer:
    """The result of a job: a pickled `RankRun` a rank, and the error of a rank, if any."""

    results: tuple[bytes, ...]
    fault: Fault | None = None
    harness_error: str = ""


class ThreadsBackend:
    """Plays scenarios in a worker process, on torch's threads.

    Args:
        hang_timeout_seconds: Limit of a scenario, without the start of the worker.
    """

    name = "threads"

    def __init__(self, *, hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS) -> None:
        self._hang_timeout_seconds = hang_timeout_seconds
        self._worker: WorkerProcess | None = None

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        """Play a scenario.

        Args:
            scenario: The scenario.
            subject: The synchronizer.

        Returns:
            The run.

        Raises:
            InternalError: The harness failed in the worker.
        """
        connection = self._connection()
        connection.send(ThreadsJob(scenario.to_json(), pack_subject(subject)))
        answer = self._answer(connection, scenario.mesh.num_ranks)
        if answer.fault is not None or answer.harness_error:
            self.close()  # other ranks still wait there
        if answer.harness_error:
            raise InternalError(answer.harness_error)
        results = tuple(map(unpack_result, answer.results))
        return Run(self.name, results, answer.fault)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _connection(self) -> Connection:
        if self._worker is None:
            self._worker = WorkerProcess("comparison.threads_worker")
            self._worker.await_ready()
        return self._worker.connection

    def _answer(self, connection: Connection, num_ranks: int) -> ThreadsAnswer:
        nothing = tuple(pack_result(RankRun()) for _ in range(num_ranks))
        ranks = tuple(range(num_ranks))
        if not connection.poll(self._hang_timeout_seconds):
            return ThreadsAnswer(nothing, Fault("deadlock", ranks, "threads never end"))
        try:
            answer: ThreadsAnswer = connection.recv()
        except EOFError:
            return ThreadsAnswer(nothing, Fault("process_died", ranks, "it died"))
        return answer


def play_on_threads(scenario: Scenario, subject: Subject) -> ThreadsAnswer:
    """Play a scenario on threads of this process.

    Args:
        scenario: The scenario.
        subject: The synchronizer.

    Returns:
        The answer. If a rank raised, the threads of other ranks may still wait for it.
    """
    num_ranks, store = scenario.mesh.num_ranks, dist.HashStore()
    results = [RankRun() for _ in range(num_ranks)]
    ended: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()

    def program(rank: int) -> None:
        try:
            play_threaded_rank(scenario, subject, rank, store, results[rank])
        except Exception as error:  # noqa: BLE001  # becomes the answer below
            ended.put((rank, error))
        else:
            ended.put((rank, None))

    with thread_local_world():  # which also registers the `threaded` backend
        for rank in range(num_ranks):
            threading.Thread(target=program, args=(rank,), daemon=True).start()
        for _ in range(num_ranks):
            rank, error = ended.get()
            if error is not None:
                return _raised(error, rank, results)
    return ThreadsAnswer(tuple(map(pack_result, results)))


def _raised(error: BaseException, rank: int, results: list[RankRun]) -> ThreadsAnswer:
    seen = tuple(map(pack_result, results))  # others wait for this rank, or soon will
    if isinstance(error, SubjectRaisedError):
        return ThreadsAnswer(seen, raised_fault(error, rank))
    return ThreadsAnswer(seen, harness_error=f"rank {rank}: {error!r}")


def serve(connection: Connection) -> None:
    """Play jobs until the owner goes away; see `comparison.threads_worker`."""
    try:
        while True:
            job: ThreadsJob = connection.recv()
            scenario = Scenario.from_json(job.scenario)
            connection.send(play_on_threads(scenario, unpack_subject(job.subject)))
    except EOFError:
        pass
