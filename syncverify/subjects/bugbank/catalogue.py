"""The registry of planted defects: the entries of the bank, and those of any other package."""

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType

from syncverify.errors import UsageError
from syncverify.subjects import bugbank
from syncverify.subjects.bugbank.entry import MARK, Entry

FAMILIES = (
    "numerics", "ordering", "lifecycle", "layout", "cross-rank", "autograd", "memory",
    "faults",
)  # fmt: skip


@functools.cache
def entries() -> tuple[Entry, ...]:
    """List all entries of the bank by family and name."""
    listed = registered(bugbank)
    return tuple(sorted(listed, key=lambda e: (FAMILIES.index(e.family), e.name)))


def registered(package: ModuleType) -> Iterator[Entry]:
    """Yield the entries of the classes that a package's modules define; bases do not count."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == found.name:
                yield from vars(each).get(MARK, ())


def entry_of(name: str) -> Entry:
    """Return the entry of the bank with a name."""
    return entry_among(entries(), name, page="docs/bug-bank.md")


def entry_among(listed: Iterable[Entry], name: str, *, page: str) -> Entry:
    """Return the entry with a name; another name is a `UsageError`."""
    named = {entry.name: entry for entry in listed}
    if name in named:
        return named[name]
    near = difflib.get_close_matches(name, [*named])
    raise UsageError(
        f"unknown defect {name!r}: "
        + (f"did you mean {' or '.join(near)}?" if near else f"see {page}")
    )
