"""A warm worker: one process that plays one rank of scenario after scenario.

The control thread owns the connection to the parent, answers questions about where the
playing thread stands, and ends the process the moment the parent is gone, so that no
worker outlives it. Each job is played on a thread of its own: torch keeps caches of
DTensor operators per thread, which hold meshes, whose process groups hold sockets.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist

from syncverify.backends.messages import (
    Answer,
    Job,
    Ready,
    Status,
    StatusRequest,
    unpack_subject,
)
from syncverify.backends.process_rank import Membership, play_rank
from syncverify.graphs.modes import ignore_reports_of_anomalies
from syncverify.recorder import Recorder
from syncverify.scenario import Scenario
from syncverify.sourcelines import is_torch_line, outermost_frames
from syncverify.trace import CollectiveLaunch

# The parent ends stuck workers much sooner; this bounds a worker whose parent is stuck.
COLLECTIVE_TIMEOUT = timedelta(seconds=120)


class Worker:
    """Plays jobs that arrive on a connection.

    Args:
        connection: To the parent.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._send_lock = threading.Lock()
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._recorder = Recorder()
        self._player = threading.current_thread()

    def serve(self) -> None:
        """Play jobs until the parent goes away."""
        threading.Thread(target=self._control, name="control", daemon=True).start()
        self._send(Ready())
        while True:
            job = self._jobs.get()
            self._player = threading.Thread(target=self._answer, args=(job,))
            self._player.start()
            self._player.join()

    def _control(self) -> None:
        try:
            while True:
                message = self._connection.recv()
                if isinstance(message, StatusRequest):
                    self._send(self._status())
                else:
                    self._jobs.put(message)
        except (EOFError, OSError):
            pass  # the parent is gone: so is the reason to live
        finally:
            os._exit(
                0
            )  # whatever ends this thread: without it nothing ends the process

    def _send(self, message: object) -> None:
        try:
            with self._send_lock:
                self._connection.send(message)
        except OSError:
            os._exit(0)  # as in `_control`: the parent is gone

    def _status(self) -> Status:
        frame = sys._current_frames().get(self._player.ident or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        events = list(self._recorder.events)
        return Status(
            progress=len(events),
            lines=tuple(outermost_frames(stack)),
            in_torch=bool(stack) and is_torch_line(stack[-1].filename),
            launches=tuple(e for e in events if isinstance(e, CollectiveLaunch)),
        )

    def _answer(self, job: Job) -> None:
        self._send(self._play(job))

    def _play(self, job: Job) -> Answer:
        self._recorder = Recorder()
        try:
            subject = unpack_subject(job.subject)
        except Exception:  # noqa: BLE001  # reported as the harness's own fault
            return Answer(job.number, b"", harness_error=traceback.format_exc())
        scenario = Scenario.from_json(job.scenario)
        membership = Membership(
            number=job.number,
            transport="gloo",
            store=dist.TCPStore("127.0.0.1", job.store_port, is_master=False),
            rank=job.rank,
            world_size=scenario.mesh.num_ranks,
            timeout=COLLECTIVE_TIMEOUT,
        )
        return play_rank(
            membership,
            scenario,
            subject,
            device=torch.device("cpu"),
            recorder=self._recorder,
        )


def _use_loopback() -> None:
    """Keep gloo off the network: hostnames of laptops often resolve to nowhere."""
    names = [name for _, name in socket.if_nameindex()]
    loopback = next((name for name in names if name.startswith("lo")), None)
    if loopback is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)


def main(descriptor: int) -> None:
    """Serve on an inherited socket.

    Args:
        descriptor: File descriptor of the connection to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    torch.set_num_threads(1)
    ignore_reports_of_anomalies()
    _use_loopback()
    Worker(Connection(descriptor)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
