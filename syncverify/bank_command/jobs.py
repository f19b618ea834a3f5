"""Play entries one after the other, or by several processes side by side."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from strategies.parallel import Failed
from syncverify.backends.choice import open_backend
from syncverify.backends.pool import WorkerProcess, await_any
from syncverify.bank_command.play import Budget, Played, Player
from syncverify.bugbank.entry import Entry
from syncverify.errors import InternalError

_WORKER = "syncverify.bank_command.worker"
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class BankJob:
    """Entries that have one twin, to be played by one process.

    Attributes:
        entry_ids: Their ids.
        backend: Name of the backend.
        budget: How long to search.
    """

    entry_ids: tuple[str, ...]
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
        player: Player | None = None
        for entry in entries:
            if player is None:
                opened = open_backend(backend, entry.defect())
                stack.callback(opened.close)
                player = Player(opened, budget)
            yield player.play(entry)


def _side_by_side(
    entries: Sequence[Entry], backend: str, budget: Budget, jobs: int
) -> Generator[Played]:
    left = deque(BankJob(ids, backend, budget) for ids in _by_twin(entries))
    with contextlib.ExitStack() as stack:
        busy: dict[Connection, WorkerProcess] = {}
        owed: dict[Connection, int] = {}
        workers = [WorkerProcess(_WORKER) for _ in range(min(jobs, len(left)))]
        for worker in workers:
            stack.callback(worker.end)
        for worker in workers:
            worker.await_ready()
            busy[worker.connection] = worker
            owed[worker.connection] = 0
            _hand_out(worker.connection, left, owed)
        while busy:
            for connection in await_any([*busy], _POLL_SECONDS):
                yield _answer(connection, busy[connection])
                owed[connection] -= 1
                _hand_out(connection, left, owed)
                if not owed[connection]:
                    del busy[connection]


def _by_twin(entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    """List ids of entries that have one twin together, the most first."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for entry in entries:
        groups.setdefault(entry.contract, []).append(entry.id)
    return sorted(map(tuple, groups.values()), key=len, reverse=True)


def _hand_out(
    connection: Connection, left: deque[BankJob], owed: dict[Connection, int]
) -> None:
    """Give a process that owes nothing more to play."""
    if left and not owed[connection]:
        job = left.popleft()
        owed[connection] = len(job.entry_ids)
        connection.send(job)


def _answer(connection: Connection, worker: WorkerProcess) -> Played:
    try:
        answer: Played | Failed = connection.recv()
    except (EOFError, OSError):
        reason = worker.exit_reason()
        raise InternalError(f"a process of the bank ended by {reason}") from None
    if isinstance(answer, Failed):
        raise answer.kind(answer.text)
    return answer
