"""The worker process of the `gloo` backend: it plays one rank of scenario after scenario.

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

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from syncverify.late_imports import import_dynamo
from syncverify.playing.messages import (
    Job,
    JobOutcome,
    JobStarted,
    OfJob,
    Ready,
    Status,
    StatusRequest,
    unpack_subject,
)
from syncverify.playing.process_rank import RankPart, Seat, play_rank
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.playing.rank_groups import use_loopback
from syncverify.processes.process_state import name_own_thread
from syncverify.processes.wire import Wire
from syncverify.scenario.scenario import Scenario
from syncverify.trace.recorder import Recorder

# The parent ends stuck workers much sooner. This limit is for a parent that is stuck itself.
COLLECTIVE_TIMEOUT = timedelta(seconds=120)


class Worker:
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
    Worker(wire).serve()
