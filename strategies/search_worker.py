"""A process that searches a share of the examples: `python -m strategies.search_worker`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from strategies.judge import Identity
from strategies.parallel import Failed, Played, SearchJob, Shrinking
from strategies.search import search
from strategies.search_result import SearchResult
from syncverify.backends.choice import open_backend
from syncverify.backends.messages import Ready, unpack_subject
from syncverify.errors import InternalError, SyncverifyError
from syncverify.graphs.modes import ignore_reports_of_anomalies


@dataclass(frozen=True, slots=True)
class _Told:
    """Progress, told to the parent, which counts what all processes played."""

    connection: Connection

    def played(self, num_examples: int, num_violations: int) -> None:
        self.connection.send(Played(num_violations))

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        self.connection.send(Shrinking(identity, num_runs))


def main(descriptor: int) -> None:
    """Search one share, and wait for the end.

    Args:
        descriptor: File descriptor of the connection to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    torch.set_num_threads(1)
    ignore_reports_of_anomalies()
    connection = Connection(descriptor)
    connection.send(Ready())
    job: SearchJob = connection.recv()
    # Nothing follows the job but the end: of the search, or of the parent.
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    connection.send(_answer(job, _Told(connection)))
    threading.Event().wait()


def _end_with_parent(connection: Connection) -> None:
    try:
        connection.recv()
    finally:
        os._exit(0)  # rank threads may still play


def _answer(job: SearchJob, told: _Told) -> SearchResult | Failed:
    try:
        subject = unpack_subject(job.subject)
        with closing(open_backend(job.backend, subject)) as backend:
            return search(subject, backend, job.plan, told)
    except SyncverifyError as error:
        return Failed(type(error), str(error))
    except Exception:  # noqa: BLE001  # a fault of ours, raised again in the parent
        return Failed(InternalError, traceback.format_exc())


if __name__ == "__main__":
    main(int(sys.argv[1]))
