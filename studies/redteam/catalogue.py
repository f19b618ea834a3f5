"""All programs of the red team: each class that `wrong` or `right` marks."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator

from studies import redteam
from studies.redteam.program import BLIND_SPOTS, Program, program_of
from syncverify.errors import UsageError


@functools.cache
def programs() -> tuple[Program, ...]:
    """List the programs: wrong ones by blind spot, then right ones by topic."""
    order = [*BLIND_SPOTS]
    return tuple(
        sorted(
            _found(),
            key=lambda each: (
                not each.is_wrong,
                order.index(each.topic) if each.is_wrong else 0,
                each.topic,
                each.name,
            ),
        )
    )


def program_named(name: str) -> Program:
    """Return the program of a name.

    Raises:
        UsageError: There is none of this name.
    """
    for program in programs():
        if program.name == name:
            return program
    raise UsageError(f"unknown program {name!r}: see docs/redteam.md")


def _found() -> Iterator[Program]:
    prefix = f"{redteam.__name__}."
    for found in pkgutil.walk_packages(redteam.__path__, prefix):
        if ".wrong." in found.name or ".right." in found.name:
            module = importlib.import_module(found.name)
            for subject in vars(module).values():
                program = program_of(subject)
                if program and program.subject.__module__ == found.name:
                    yield program
