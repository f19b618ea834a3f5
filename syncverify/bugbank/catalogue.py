"""All entries of the bank: each module with a class that `reported` marks."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil

from syncverify import bugbank
from syncverify.bugbank.entry import Entry, entry_in
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
        module.name
        for module in pkgutil.walk_packages(bugbank.__path__, f"{bugbank.__name__}.")
    )
    modules = map(importlib.import_module, names)
    found = (entry_in(vars(module)) for module in modules)
    listed = [entry for entry in found if entry is not None]
    return tuple(sorted(listed, key=lambda e: (SECTIONS.index(e.section), e.id)))


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
