"""The change that a rank has made to a part of the process.

Note [State of the process]
    Ranks are threads of one process; the ranks of a job are processes. So each rank has its
    own copy of the state that a process has once: as a turn ends, the rank's changes are taken
    out and kept, and they are put back as the rank's next turn starts. Between turns, and after
    the run, the process is as before. Parts that no rank has changed are compared, and not
    written; torch's generator is always written.

    An import runs once in a process, and each rank of a job makes it. So the changes that an
    import makes are those of all ranks.

    `docs/per-rank-state.md` lists the parts.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol


class ProcessPart(Protocol):
    """One part of the process.

    Attributes:
        is_imported: Whether an import may change the part for all ranks.
    """

    is_imported: bool

    def take(self) -> Any:
        """Return the change since `share()` and undo it; None if there is none."""

    def put(self, change: Any) -> None:
        """Make a change that `take()` has returned."""

    def share(self) -> None:
        """Let the present state be that of all ranks."""


class Value:
    """A part that one value describes.

    Args:
        read: Returns the value.
        write: Sets the value.
        is_same: Compares two values.
    """

    is_imported = True

    def __init__(
        self,
        read: Callable[[], Any],
        write: Callable[[Any], object],
        is_same: Callable[[Any, Any], bool],
    ) -> None:
        self._read, self._write, self._is_same = read, write, is_same
        self.share()

    def share(self) -> None:
        """Let the present value be that of all ranks."""
        self._shared = self._read()

    def take(self) -> Any:
        """Return the rank's value in a tuple, or None if it is that of all ranks."""
        own = self._read()
        if self._is_same(own, self._shared):
            return None
        self._write(self._shared)
        return (own,)

    def put(self, change: Any) -> None:
        """Set the rank's value."""
        self._write(*change)


@dataclass(frozen=True, slots=True)
class _Entries:
    """A change of a table.

    Attributes:
        new: Entries with their new values.
        lost: Names of lost entries.
    """

    new: Mapping[Any, Any]
    lost: tuple[Any, ...]


class Table:
    """A part that is a table, such as the hooks of all modules.

    Args:
        entries: The table, which stays the same object.
    """

    is_imported = True

    def __init__(self, entries: MutableMapping[Any, Any]) -> None:
        self._entries = entries
        self.share()

    def share(self) -> None:
        """Let the present entries be those of all ranks."""
        self._shared = dict(self._entries)

    def take(self) -> Any:
        """Return the entries that differ, and put back those of all ranks."""
        entries, shared = self._entries, self._shared
        if entries == shared:
            return None
        new = dict(_new(entries, shared))
        change = _Entries(new, tuple(shared.keys() - entries.keys()))
        entries.clear()
        entries.update(shared)
        return change

    def put(self, change: Any) -> None:
        """Put the rank's entries into the table."""
        for name in change.lost:
            self._entries.pop(name, None)
        self._entries.update(change.new)


def _new(entries: Mapping[Any, Any], shared: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield the entries with another value, by identity."""
    missing = object()
    return (
        (name, value)
        for name, value in entries.items()
        if shared.get(name, missing) is not value
    )


def attribute(owner: Any, name: str) -> Value:
    """Return an attribute as a part of the process."""
    read = functools.partial(getattr, owner, name)
    return Value(read, functools.partial(setattr, owner, name), operator.is_)
