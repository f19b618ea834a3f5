"""All entries of the bank: each module with a class that `reported` marks."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from syncverify import bugbank
from syncverify.bugbank.entry import MARK, Entry
from syncverify.errors import UsageError

SECTIONS = (
    "numerics",
    "ordering",
    "lifecycle",
    "layout",
    "cross-rank",
    "autograd",
    "memory",
    "faults",
)


@functools.cache
def entries() -> tuple[Entry, ...]:
    """List all entries by section and id."""
    listed = marked(bugbank, MARK)
    return tuple(sorted(listed, key=lambda e: (SECTIONS.index(e.section), e.id)))


def marked(package: ModuleType, mark: str) -> Iterator[Any]:
    """Yield the marks of the classes that a package's modules define; bases do not count."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == found.name:
                own = vars(each).get(mark)
                if own is not None:
                    yield own


def entry_of(entry_id: str) -> Entry:
    """Return the entry of an id.

    Raises:
        UsageError: There is none of this id.
    """
    for entry in entries():
        if entry.id == entry_id:
            return entry
    near = difflib.get_close_matches(entry_id, [entry.id for entry in entries()])
    raise UsageError(
        f"unknown defect {entry_id!r}: "
        + (f"did you mean {' or '.join(near)}?" if near else "see docs/bug-bank.md")
    )
