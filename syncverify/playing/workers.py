"""Worker processes of this machine: their pool, the outcomes that they send, and one process of gloo.

A worker of gloo plays one rank of scenario after scenario.

| thread | part |
|---|---|
| control | receives jobs and status requests, reports the status, ends the process with its parent |
| main | starts one thread for each job |
| one for each job | plays and sends the outcome |

A job needs a new thread because torch keeps caches of DTensor operators by thread. The
caches hold meshes, and the process groups of a mesh hold sockets.

Note [A copy of a rank]
    A subject that calls `os.fork` and goes on in both processes makes a copy of its rank. The
    copy has the connection to the parent, and would tell the outcome a second time, as that of
    the next scenario, or in the middle of a message of the rank. Only the thread that forked
    goes on in the copy, so it ends where that thread would send: the rank alone is judged.
"""

import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.errors import InternalError
from syncverify.late_imports import import_dynamo
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
    unpack_subject,
)
from syncverify.playing.process_rank import RankPart, Seat, play_rank
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.playing.rank_groups import use_loopback
from syncverify.processes.forked_process import start
from syncverify.processes.process_state import name_own_thread
from syncverify.processes.silence import START_SECONDS
from syncverify.processes.supervised import HungUp, Supervised, attend, heard_from
from syncverify.processes.system import require_descriptors
from syncverify.processes.wire import Wire
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.subject import Subject
from syncverify.trace.recorder import Recorder
from syncverify.trace.run import Fault

_MAX_STARTS = 3
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
    """Workers by rank; they need enough open files."""

    def __init__(self, module: str = __name__) -> None:
        require_descriptors()
        self._module = module
        self._workers: dict[int, Supervised] = {}

    def take(self, count: int) -> list[Supervised]:
        """Return the workers of ranks 0..count-1, in order, each ready for a job."""
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


# The parent ends stuck workers much sooner. This limit is for a parent that is stuck itself.
COLLECTIVE_TIMEOUT = timedelta(seconds=120)


class _Worker:
    """Plays jobs that arrive on a connection to the parent."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._job_number = 0
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._recorder = Recorder()
        self._player = threading.current_thread()

    def serve(self) -> None:
        """Play jobs until the parent is gone."""
        threading.Thread(target=self._control, name="control", daemon=True).start()
        self._send(Ready())
        while True:
            job = self._jobs.get()
            self._player = threading.Thread(target=self._play_and_send, args=(job,))
            self._player.start()
            self._player.join()

    def _control(self) -> None:
        name_own_thread()
        try:
            while True:
                message = self._wire.receive()
                if isinstance(message, StatusRequest):
                    status = Status.of(self._player, self._recorder)
                    self._send(OfJob(self._job_number, status))
                else:
                    self._job_number = message.number
                    self._send(OfJob(message.number, JobStarted()))
                    self._jobs.put(message)
        except (EOFError, OSError):
            pass  # the parent is gone
        finally:
            os._exit(0)  # also after an error: without this thread no other one ends it

    def _send(self, message: Ready | OfJob) -> None:
        try:
            self._wire.send(message)
        except OSError:
            os._exit(0)  # as in `_control`: the parent is gone

    def _play_and_send(self, job: Job) -> None:
        def tell(outcome: JobOutcome) -> None:
            self._send(OfJob(job.number, outcome))

        self._recorder = Recorder()
        try:
            subject = unpack_subject(job.subject)
        except Exception:  # noqa: BLE001  # reported as the harness's own fault
            tell(JobOutcome(harness_error=traceback.format_exc()))
            return
        store = dist.TCPStore("127.0.0.1", job.store_port, is_master=False)
        seat = Seat("gloo", store, job.rank, COLLECTIVE_TIMEOUT, torch.device("cpu"))
        scenario = Scenario.from_json(job.scenario)
        play_rank(RankPart(job.number, seat, scenario, subject, self._recorder), tell)


def main(wire: Wire) -> None:
    """Serve jobs that arrive on the wire to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    torch.set_num_threads(1)
    show_warnings_once()
    import_dynamo()
    use_loopback()
    _Worker(wire).serve()
