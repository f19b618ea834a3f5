"""Worker processes of this machine: their pool, and the outcomes that they send."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from syncverify.errors import InternalError
from syncverify.playing.gathering import Gathering
from syncverify.playing.messages import (
    Job,
    JobOutcome,
    JobStarted,
    OfJob,
    Ready,
    Status,
    StatusRequest,
    pack_subject,
)
from syncverify.processes.forked_process import start
from syncverify.processes.silence import START_SECONDS
from syncverify.processes.supervised import HungUp, Supervised, attend, heard_from
from syncverify.processes.system import require_descriptors
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Fault

_MAX_STARTS = 3
_WORKER = "syncverify.playing.worker"
# torch's caches of operators grow with each new shape.
MAX_JOBS_PER_WORKER = 250


def await_ready(worker: Supervised) -> None:
    """Wait until a worker has imported its modules."""
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
    """Workers by rank.

    Raises:
        EnvironmentNotSupportedError: The system allows too few open files.
    """

    def __init__(self, module: str = _WORKER) -> None:
        require_descriptors()
        self._module = module
        self._workers: dict[int, Supervised] = {}

    def take(self, count: int) -> list[Supervised]:
        """Return the workers of ranks 0..count-1, in order, each ready for a job.

        Raises:
            InternalError: A worker did not start, several times.
        """
        for rank in range(count):
            if (worker := self._workers.get(rank)) is not None and (
                worker.num_jobs >= MAX_JOBS_PER_WORKER
                or worker.has_ended()
                or worker.is_stopped()
            ):
                self.discard(rank)
        for number in range(1, _MAX_STARTS + 1):
            missing = [rank for rank in range(count) if rank not in self._workers]
            error = self._start(missing)
            if error is not None and number == _MAX_STARTS:
                raise error
        taken = [self._workers[rank] for rank in range(count)]
        for worker in taken:
            worker.num_jobs += 1
        return taken

    def play(
        self, scenario: Scenario, subject: Subject, number: int = 0, store_port: int = 0
    ) -> list[Supervised]:
        """Let the worker of each rank play a scenario, as a job; return the workers."""
        workers = self.take(scenario.mesh.num_ranks)
        text, packed = scenario.to_json(), pack_subject(subject)
        for rank, worker in enumerate(workers):
            worker.send(Job(text, packed, rank, number, store_port))
        return workers

    def _start(self, ranks: Iterable[int]) -> InternalError | None:
        """Start workers side by side; return the error of one that did not start."""
        module = self._module
        started = {rank: start(module, rank % 2, imports=[module]) for rank in ranks}
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


# A rank in which Python runs answers within this share of a window, on a thread for that.
_ANSWER_SHARE = 0.6


@dataclass(kw_only=True)
class WorkerGathering(Gathering[Supervised]):
    """The outcomes that workers send."""

    job: int
    # Ranks of which the worker has taken the job.
    started: set[int] = field(default_factory=set)

    def has_started(self, fault: Fault | None) -> bool:
        """Tell whether the workers at fault had taken the job."""
        return fault is not None and self.started.issuperset(fault.ranks)

    @override
    def _receive(self, patience_seconds: float) -> bool:
        return self._receive_from(self.pending(), patience_seconds)

    def _receive_from(self, ranks: Sequence[int], seconds: float) -> bool:
        """Receive what some ranks send first; return False if nothing came in the time."""
        by_process = {self.processes[rank]: rank for rank in ranks}
        heard = heard_from([*by_process], seconds)
        for process in heard:
            for message in process.hear():
                self._note(by_process[process], message)
        return bool(heard)

    def _note(self, rank: int, received: object) -> None:
        if isinstance(received, HungUp):
            self.died[rank] = self.processes[rank].exit_reason()
        if not isinstance(received, OfJob) or received.number != self.job:
            return
        match received.message:
            case JobStarted():
                self.started.add(rank)
            case JobOutcome():
                self.outcomes[rank] = received.message
                self.statuses.pop(rank, None)
            case Status() if rank not in self.outcomes:
                self.statuses[rank] = received.message

    @override
    def _ask(self, seconds: float) -> None:
        self.statuses.clear()
        for rank in self.pending():
            self.processes[rank].send(StatusRequest())
        # All ranks answer meanwhile: two that are silent cost the time of one.
        deadline = time.monotonic() + _ANSWER_SHARE * seconds
        while asked := [
            rank for rank in self.silent() if not self.processes[rank].is_stopped()
        ]:
            if not self._receive_from(asked, max(0.0, deadline - time.monotonic())):
                break
        for rank in self.silent():
            # A process that the subject has forked may keep the connection open.
            if self.processes[rank].has_ended():
                self.died[rank] = self.processes[rank].exit_reason()
