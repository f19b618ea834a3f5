"""The programs of the red team, from the modules that define them."""

import functools
import itertools

from studies.redteam import right, second, wrong
from syncverify.subjects.bugbank.catalogue import entry_among, registered
from syncverify.subjects.bugbank.entry import Entry


@functools.cache
def programs() -> tuple[Entry, ...]:
    """List the programs: wrong ones, right ones, then those of the second team."""
    packages = (wrong, right, second)
    return tuple(itertools.chain(*(registered(package) for package in packages)))


def program_named(name: str) -> Entry:
    """Return the program of a name."""
    return entry_among(programs(), name, page="docs/how-we-know.md")
