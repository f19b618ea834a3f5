"""The state that a worker takes over from the process that asked for it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from syncverify.import_path import import_path, take_over, user_folders
from syncverify.processes.wire import Wire


@dataclass(frozen=True, slots=True)
class Setup:
    """The state that a worker takes over from the process that wants it."""

    # Name of a module; its `main` gets the wire to the process that asked.
    module: str
    directory: str
    environment: Mapping[str, str]
    import_path: list[str]
    user_folders: frozenset[str]


def setup_here(module: str, environment: Mapping[str, str]) -> Setup:
    """Return the state of this process, for a worker that runs `main` of a module."""
    return Setup(module, str(Path.cwd()), environment, import_path(), user_folders())


def become_worker(wire: Wire) -> None:
    """Take over the state that the first message holds, and run the module's `main`."""
    try:
        setup: Setup = wire.receive()
    except EOFError:
        return  # ended before it began
    os.environ.clear()
    os.environ.update(setup.environment)
    os.chdir(setup.directory)
    take_over(setup.import_path, setup.user_folders)
    importlib.invalidate_caches()
    importlib.import_module(setup.module).main(wire)


def main() -> None:
    """Become a worker, in a process that no template has forked."""
    become_worker(Wire(int(sys.argv[1])))
