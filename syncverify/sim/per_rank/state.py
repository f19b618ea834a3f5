"""The state of the process that changes with the turn; see Note [State of the process].

The only module that touches `importlib._bootstrap`. It relies on Python to look
`_find_and_load` up there for each module that is not loaded, and on nothing else; a test says
so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from syncverify.sim.per_rank.functions import Functions
from syncverify.sim.per_rank.parts import ProcessPart, process_parts
from syncverify.sim.turns.scheduler import own_rank


@contextmanager
def _imports_apart(
    apart: Callable[[], AbstractContextManager[None]],
) -> Iterator[None]:
    """Run each import of a rank within a context, for a block; an import within it runs plainly."""
    bootstrap: Any = importlib._bootstrap  # noqa: SLF001
    load = bootstrap._find_and_load  # noqa: SLF001
    is_importing = False

    def load_apart(*args: Any) -> Any:
        nonlocal is_importing
        if is_importing or own_rank() is None:
            return load(*args)
        is_importing = True
        try:
            with apart():
                return load(*args)
        finally:
            is_importing = False

    with mock.patch.object(bootstrap, "_find_and_load", load_apart):
        yield


class StateOfRanks:
    """The changes that the ranks of one run have made to the process."""

    def __init__(self) -> None:
        self._parts: tuple[ProcessPart, ...] = ()
        self._changes = dict[int, list[tuple[ProcessPart, Any]]]()
        self._rank: int | None = None

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep the changes of ranks apart for a block, and from the process after it."""
        functions = Functions()
        self._parts = (*process_parts(), functions)
        with functions.watching_mocks(), _imports_apart(self._sharing_changes):
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
    def _sharing_changes(self) -> Iterator[None]:
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
