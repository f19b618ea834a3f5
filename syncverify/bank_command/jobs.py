"""Play entries one after the other, or by several processes side by side."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from strategies.parallel import Failed
from syncverify.backends.choice import AnyBackend, open_backend
from syncverify.backends.pool import WorkerProcess, await_any
from syncverify.bank_command.play import Budget, Played, play
from syncverify.bugbank.entry import Entry
from syncverify.errors import InternalError

_WORKER = "syncverify.bank_command.worker"
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class EntryJob:
    """One entry to play.

    Attributes:
        entry_id: Its id.
        backend: Name of the backend.
        budget: How long to search.
    """

    entry_id: str
    backend: str
    budget: Budget


def play_all(
    entries: Sequence[Entry], backend: str, budget: Budget, jobs: int
) -> Generator[Played]:
    """Play entries.

    Args:
        entries: What to play.
        backend: Name of the backend.
        budget: How long to search each.
        jobs: Number of processes.

    Yields:
        What came of each, as they end.
    """
    if jobs > 1 and len(entries) > 1:
        yield from _side_by_side(entries, backend, budget, jobs)
        return
    with contextlib.ExitStack() as stack:
        opened: AnyBackend | None = None
        for entry in entries:
            if opened is None:
                opened = open_backend(backend, entry.defect())
                stack.callback(opened.close)
            yield play(entry, opened, budget)


def _side_by_side(
    entries: Sequence[Entry], backend: str, budget: Budget, jobs: int
) -> Generator[Played]:
    left = deque(EntryJob(entry.id, backend, budget) for entry in entries)
    with contextlib.ExitStack() as stack:
        busy: dict[Connection, WorkerProcess] = {}
        workers = [WorkerProcess(_WORKER) for _ in range(min(jobs, len(left)))]
        for worker in workers:
            stack.callback(worker.end)
        for worker in workers:
            worker.await_ready()
            worker.connection.send(left.popleft())
            busy[worker.connection] = worker
        while busy:
            for connection in await_any([*busy], _POLL_SECONDS):
                yield _answer(connection, busy[connection])
                if left:
                    connection.send(left.popleft())
                else:
                    del busy[connection]


def _answer(connection: Connection, worker: WorkerProcess) -> Played:
    try:
        answer: Played | Failed = connection.recv()
    except (EOFError, OSError):
        reason = worker.exit_reason()
        raise InternalError(f"a process of the bank ended by {reason}") from None
    if isinstance(answer, Failed):
        raise answer.kind(answer.text)
    return answer
