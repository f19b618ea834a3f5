"""One process of a parallel search: `python -m syncverify.search.parallel_worker`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import torch

from syncverify.backends.choice import open_backend
from syncverify.backends.messages import Ready, unpack_subject
from syncverify.errors import InternalError, SyncverifyError
from syncverify.processes.owner_link import link_to_owner
from syncverify.program.warnings_once import show_warnings_once
from syncverify.search.drawing import EndedError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.parallel import (
    Announcement,
    ScenarioPlayed,
    SearchJob,
    ShrinkingRun,
    ViolationMet,
    ViolationShrunk,
    WorkerFailure,
)
from syncverify.search.result import SearchResult
from syncverify.search.search import search


class _Sender:
    """Sends messages to the parent, from any thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        with self._lock:
            self._connection.send(message)


@dataclass(frozen=True, slots=True)
class _ForwardedProgress:
    """Progress that is sent to the parent, which counts for all processes."""

    connection: _Sender
    is_stopped: threading.Event = field(default_factory=threading.Event)

    def played(self, num_examples: int, num_violations: int) -> None:
        self.connection.send(ScenarioPlayed(num_violations))
        if self.is_stopped.is_set():
            raise EndedError

    def found(self, violation: FoundViolation) -> None:
        self.connection.send(ViolationMet(violation))

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        self.connection.send(ShrinkingRun(identity, num_runs))

    def shrunk(self, violation: FoundViolation) -> None:
        self.connection.send(ViolationShrunk(violation))


def main(descriptor: int) -> None:
    """Search one share, send its result, and wait until the parent ends this process.

    `descriptor` is the file descriptor of the connection to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the parent ends its workers
    torch.set_num_threads(1)
    show_warnings_once()
    connection = Connection(descriptor)
    connection.send(Ready())
    job: SearchJob = connection.recv()
    sender = _Sender(connection)
    link_to_owner(lambda word, text: sender.send(Announcement(word, text)))
    progress = _ForwardedProgress(sender)
    threading.Thread(
        target=_obey_parent, args=(connection, progress.is_stopped), daemon=True
    ).start()
    sender.send(_result(job, progress))
    threading.Event().wait()


def _obey_parent(connection: Connection, is_stopped: threading.Event) -> None:
    """Note that the parent stops the exploration; end this process when the parent ends."""
    try:
        connection.recv()  # `StopExploring`, or the end
        is_stopped.set()
        connection.recv()
    finally:
        os._exit(0)  # at once: threads of ranks may still run


def _result(
    job: SearchJob, progress: _ForwardedProgress
) -> SearchResult | WorkerFailure:
    try:
        subject = unpack_subject(job.subject)
        with closing(open_backend(job.backend, subject)) as backend:
            return search(subject, backend, job.plan, progress)
    except SyncverifyError as error:
        return WorkerFailure(type(error), str(error))
    except Exception:  # noqa: BLE001  # a fault of the harness, raised again in the parent
        return WorkerFailure(InternalError, traceback.format_exc())


if __name__ == "__main__":
    main(int(sys.argv[1]))
