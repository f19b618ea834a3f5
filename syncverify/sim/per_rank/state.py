"""The state of the process that changes with the turn; see Note [State of the process]."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from syncverify.sim.per_rank.change import ProcessPart
from syncverify.sim.per_rank.dtensor_tables import dtensor_tables
from syncverify.sim.per_rank.fsdp_profiler import fsdp_profiler
from syncverify.sim.per_rank.functions import functions, watching_mocks
from syncverify.sim.per_rank.generators import generators
from syncverify.sim.per_rank.hooks import hooks
from syncverify.sim.per_rank.imports import imports_apart
from syncverify.sim.per_rank.settings import settings

# Each yields parts, as they are at the start of a run.
KINDS: Final[tuple[Callable[[], Iterable[ProcessPart]], ...]] = (
    generators,
    hooks,
    dtensor_tables,
    fsdp_profiler,
    functions,
    settings,
)


class StateOfRanks:
    """The changes that the ranks of one run have made to the process."""

    def __init__(self) -> None:
        self._parts: tuple[ProcessPart, ...] = ()
        self._changes = dict[int, list[tuple[ProcessPart, Any]]]()
        self._rank: int | None = None

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep the changes of ranks apart for a block, and from the process after it."""
        self._parts = tuple(itertools.chain.from_iterable(kind() for kind in KINDS))
        with watching_mocks(self._parts), imports_apart(self.sharing_changes):
            try:
                yield
            finally:
                self.turn_to(None)

    def turn_to(self, rank: int | None) -> None:
        """Put the changes of a rank in the place of those of the last; None has none."""
        if rank == self._rank:
            return
        if self._rank is not None:
            self._changes[self._rank] = _taken(self._parts)
        if rank is not None:
            for part, change in self._changes.pop(rank, ()):
                part.put(change)
        self._rank = rank

    @contextmanager
    def sharing_changes(self) -> Iterator[None]:
        """Let all ranks have the changes of a block, which is an import."""
        imported = [part for part in self._parts if part.is_imported]
        own = _taken(imported) if self._rank is not None else []
        try:
            yield
        finally:
            if self._rank is not None:
                for part in imported:
                    part.share()
                for part, change in own:
                    part.put(change)


def _taken(parts: Iterable[ProcessPart]) -> list[tuple[ProcessPart, Any]]:
    changes = ((part, part.take()) for part in parts)
    return [(part, change) for part, change in changes if change is not None]
