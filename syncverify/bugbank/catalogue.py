"""All entries of the bank: whatever module has an `ENTRY` is in it."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil

from syncverify import bugbank
from syncverify.bugbank.entry import Entry
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
    names = (
        found.name
        for found in pkgutil.walk_packages(bugbank.__path__, f"{bugbank.__name__}.")
    )
    modules = map(importlib.import_module, names)
    listed = [module.ENTRY for module in modules if hasattr(module, "ENTRY")]
    return tuple(sorted(listed, key=lambda e: (SECTIONS.index(e.section), e.id)))


def entry_of(entry_id: str) -> Entry:
    """Find an entry.

    Args:
        entry_id: Its id.

    Returns:
        The entry.

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
