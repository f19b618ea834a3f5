"""The entries of the bank, played in this process or by several processes."""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from contextlib import closing

import torch

from syncverify.command.bank.play import BankBudget, BankPlayer, EntryResult
from syncverify.playing.choice import AnyBackend, open_backend
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.processes.calls import run_in_processes
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.entry import Entry


def play_all(
    chosen: Sequence[Entry], backend: str, budget: BankBudget, jobs: int
) -> Generator[EntryResult]:
    """Yield the result of each entry, in the order in which searches end.

    With several processes, entries with the same twin come together.

    Args:
        chosen: The entries to play.
        backend: Name of the backend.
        budget: Numbers of scenarios for each entry.
        jobs: Number of processes.

    Yields:
        The result of an entry.

    Raises:
        InternalError: A process was lost before its entries ended.
    """
    if jobs > 1 and len(chosen) > 1:
        waiting = _by_twin(chosen)
        play_entries = functools.partial(_play_entries, backend, budget)
        with closing(run_in_processes(play_entries, waiting, jobs=jobs)) as played:
            for _, results in played:
                yield from results
        return
    with closing(open_backend(backend, chosen[0].defect())) as opened:
        player = BankPlayer(opened, budget)
        yield from map(player.play, chosen)


def _by_twin(chosen: Sequence[Entry]) -> list[tuple[str, ...]]:
    """Group the ids of entries with the same twin, the largest group first."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for entry in chosen:
        groups.setdefault(entry.shared_scenarios, []).append(entry.name)
    return sorted(map(tuple, groups.values()), key=len, reverse=True)


def _play_entries(
    backend: str, budget: BankBudget, entry_ids: Sequence[str]
) -> list[EntryResult]:
    player = BankPlayer(_backend(backend), budget)
    return [player.play(entry_of(entry_id)) for entry_id in entry_ids]


@functools.cache
def _backend(name: str) -> AnyBackend:
    """Open the backend of this process once; its ranks end with the process."""
    torch.set_num_threads(1)
    show_warnings_once()
    playable = next(entry for entry in entries() if entry.runs_on(name))
    return open_backend(name, playable.defect())
