"""A place that is one process: a worker plays all ranks, and its owner sets a time limit.

Threads that wait for a rank which never comes cannot be ended, and a program of a subject may
loop. So a worker process plays, and the backend that owns the process ends it.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from syncverify.backends.messages import (
    Ready,
    pack_result,
    pack_subject,
    unpack_result,
    unpack_subject,
)
from syncverify.backends.pool import WorkerProcess
from syncverify.errors import InternalError
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault, RankRun, Run

HANG_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class PlayJob:
    """A request to play one scenario.

    Attributes:
        scenario: JSON of the scenario.
        subject: The pickled subject.
        trusted: A second pickled subject; its run is trusted.
    """

    scenario: dict[str, Any]
    subject: bytes
    trusted: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a job.

    Attributes:
        results: A pickled `RankRun` a rank.
        fault: Error of a rank; None if there is none.
        harness_error: Error of the harness in the worker; "" for none.
        remarks: Findings of the place, or the reason why it cannot play the scenario.
    """

    results: tuple[bytes, ...]
    fault: Fault | None = None
    harness_error: str = ""
    remarks: tuple[str, ...] = ()


Play = Callable[[Scenario, Subject, Subject], Answer]


class OneWorker:
    """Plays scenarios in a worker process.

    Args:
        name: Name of the backend in runs.
        module: Module of the worker.
        hang_timeout_seconds: Limit of a scenario, without the start of the worker.
    """

    def __init__(
        self,
        name: str,
        module: str,
        *,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
    ) -> None:
        self.name = name
        self._module = module
        self._hang_timeout_seconds = hang_timeout_seconds
        self._worker: WorkerProcess | None = None

    def run(
        self, scenario: Scenario, subject: Subject, trusted: Subject | None = None
    ) -> Run:
        """Play a scenario.

        Args:
            scenario: The scenario.
            subject: The synchronizer.
            trusted: A synchronizer with a right run; places that need none ignore it.

        Returns:
            The run.

        Raises:
            InternalError: The harness failed in the worker.
        """
        connection = self._connection()
        both = (pack_subject(subject), pack_subject(trusted or subject))
        connection.send(PlayJob(scenario.to_json(), *both))
        answer = self._answer(connection, scenario.mesh.num_ranks)
        if answer.fault is not None or answer.harness_error:
            self.close()  # other ranks still wait there
        if answer.harness_error:
            raise InternalError(answer.harness_error)
        results = tuple(map(unpack_result, answer.results))
        return Run(self.name, results, answer.fault, remarks=answer.remarks)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _connection(self) -> Connection:
        if self._worker is None:
            self._worker = WorkerProcess(self._module)
            self._worker.await_ready()
        return self._worker.connection

    def _answer(self, connection: Connection, num_ranks: int) -> Answer:
        nothing = packed([RankRun() for _ in range(num_ranks)])
        ranks = tuple(range(num_ranks))
        if not connection.poll(self._hang_timeout_seconds):
            return Answer(nothing, hang(ranks, self.name))
        try:
            answer: Answer = connection.recv()
        except EOFError:
            return Answer(nothing, Fault("process_died", ranks, "it died"))
        return answer


def hang(ranks: tuple[int, ...], place: str) -> Fault:
    """Return the fault of a run that reached its time limit.

    A defect and a twin that both hang end alike: see `comparison.verdicts.how_they_end`.
    """
    return Fault("deadlock", ranks, f"{place} never end", error=f"{place} never end")


def packed(results: list[RankRun]) -> tuple[bytes, ...]:
    """Pickle the results of all ranks."""
    return tuple(map(pack_result, results))


def serve(descriptor: int, play: Play) -> None:
    """Play jobs until the owner goes away, and end the process.

    Args:
        descriptor: File descriptor of the connection to the owner.
        play: Plays a scenario with a subject, and with one that is trusted.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when to end
    torch.set_num_threads(1)
    connection = Connection(descriptor)
    try:
        connection.send(Ready())
        _serve(connection, play)
    finally:
        os._exit(0)  # threads that wait for a missing rank cannot be joined


def _serve(connection: Connection, play: Play) -> None:
    try:
        while True:
            job: PlayJob = connection.recv()
            scenario = Scenario.from_json(job.scenario)
            subjects = (unpack_subject(job.subject), unpack_subject(job.trusted))
            connection.send(play(scenario, *subjects))
    except EOFError:
        pass
