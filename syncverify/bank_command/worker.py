"""A process that plays entries of the bank: `python -m syncverify.bank_command.worker`."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection

import torch

from strategies.parallel import Failed
from syncverify.backends.choice import open_backend
from syncverify.backends.messages import Ready
from syncverify.bank_command.jobs import BankJob
from syncverify.bank_command.play import Budget, Played, Player
from syncverify.bugbank.catalogue import entry_of
from syncverify.bugbank.entry import Entry
from syncverify.errors import InternalError, SyncverifyError
from syncverify.graphs.modes import ignore_reports_of_anomalies


def main(descriptor: int) -> None:
    """Play entries until the parent goes away.

    Args:
        descriptor: File descriptor of the connection to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    torch.set_num_threads(1)
    ignore_reports_of_anomalies()
    connection = Connection(descriptor)
    connection.send(Ready())
    jobs: queue.SimpleQueue[BankJob] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()
    players: dict[tuple[str, Budget], Player] = {}
    while True:
        job = jobs.get()
        for entry_id in job.entry_ids:
            connection.send(_answer(entry_of(entry_id), job, players))


def _receive(connection: Connection, jobs: queue.SimpleQueue[BankJob]) -> None:
    try:
        while True:
            jobs.put(connection.recv())
    finally:  # the parent is gone
        os._exit(0)  # rank threads may still play


def _answer(
    entry: Entry, job: BankJob, players: dict[tuple[str, Budget], Player]
) -> Played | Failed:
    try:
        key = (job.backend, job.budget)
        if key not in players:
            backend = open_backend(job.backend, entry.defect())
            players[key] = Player(backend, job.budget)
        return players[key].play(entry)
    except SyncverifyError as error:
        return Failed(type(error), str(error))
    except Exception:  # noqa: BLE001  # a fault of ours, raised again in the parent
        return Failed(InternalError, traceback.format_exc())


if __name__ == "__main__":
    main(int(sys.argv[1]))
