"""A place that is one process: a worker plays all ranks, and its owner sets a time limit.

Threads that wait for a rank which never comes cannot be ended, and a program of a subject may
loop. So a worker process plays, and the backend that owns the process ends it.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from syncverify.backends.messages import Ready
from syncverify.backends.packed_outcomes import pack_result, unpack_result
from syncverify.backends.packed_subject import pack_subject, unpack_subject
from syncverify.backends.pool import await_ready
from syncverify.errors import InternalError
from syncverify.processes.forked_process import start
from syncverify.processes.supervised import HungUp, Supervised, attend
from syncverify.processes.wire import Wire
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
        self._worker: Supervised | None = None

    def run(
        self, scenario: Scenario, subject: Subject, trusted: Subject | None = None
    ) -> Run:
        """Play a scenario.

        Args:
            scenario: Mesh, parameters and steps of the program.
            subject: The synchronizer.
            trusted: A synchronizer with a right run; places that need none ignore it.

        Returns:
            The run.

        Raises:
            InternalError: The harness failed in the worker.
        """
        worker = self._ready()
        both = (pack_subject(subject), pack_subject(trusted or subject))
        worker.send(PlayJob(scenario.to_json(), *both))
        answer = self._answer(worker, scenario.mesh.num_ranks)
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

    def _ready(self) -> Supervised:
        if self._worker is None:
            self._worker = start(self._module)
            await_ready(self._worker)
        return self._worker

    def _answer(self, worker: Supervised, num_ranks: int) -> Answer:
        nothing = packed([RankRun() for _ in range(num_ranks)])
        ranks = tuple(range(num_ranks))
        deadline = time.monotonic() + self._hang_timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            for _, word in attend([worker], left):
                if isinstance(word, HungUp):
                    return Answer(nothing, Fault("process_died", ranks, "it died"))
                answer: Answer = word
                return answer
        return Answer(nothing, hang(ranks, self.name))


def hang(ranks: tuple[int, ...], place: str) -> Fault:
    """Return the fault of a run that reached its time limit.

    A defect and a twin that both hang end alike: see `comparison.verdicts.how_they_end`.
    """
    return Fault("deadlock", ranks, f"{place} never end", error=f"{place} never end")


def packed(results: list[RankRun]) -> tuple[bytes, ...]:
    """Pickle the results of all ranks."""
    return tuple(map(pack_result, results))


def serve(wire: Wire, play: Play) -> None:
    """Play jobs until the owner goes away, and end the process.

    Args:
        wire: The connection to the owner.
        play: Plays a scenario with a subject, and with one that is trusted.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when to end
    torch.set_num_threads(1)
    try:
        wire.send(Ready())
        _serve(wire, play)
    finally:
        os._exit(0)  # threads that wait for a missing rank cannot be joined


def _serve(wire: Wire, play: Play) -> None:
    try:
        while True:
            job: PlayJob = wire.receive()
            scenario = Scenario.from_json(job.scenario)
            subjects = (unpack_subject(job.subject), unpack_subject(job.trusted))
            wire.send(play(scenario, *subjects))
    except EOFError:
        pass
