"""The words of a process that plays scenarios to the process that owns it.

A process has one owner or none, so the link belongs to the process. The owner of a command
is `syncverify.command.owner`; a search in several processes owns those. Where there is no
owner, nothing is sent.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

from syncverify.processes.process_state import name_own_thread

_BEAT_SECONDS = 1.0


class Alive:
    """Python runs here."""


class Waits:
    """This process waits for one of another command, and sleeps meanwhile."""


class Starts(NamedTuple):
    """A scenario starts; the token plays it again."""

    token: str


class Found:
    """A search has ended, and has told the violations that it found."""


class Ends(NamedTuple):
    """All was said, and this is the exit code."""

    code: int


class Lost(NamedTuple):
    """A process of this one was lost in the scenario that was sent last."""

    cause: Literal["process_died", "never_returns"]
    how: str
    signal: int = 0  # number of the signal that ended the process; 0 for none
    is_stopped: bool = False


Write = Callable[[object], object]
_owners: list[Write] = []


def link_to_owner(write: Write) -> None:
    """Connect this process with its owner; a thread tells once a second that Python runs.

    `write` sends a word to the owner, from any thread.
    """
    _owners[:] = [write]
    start_beat(lambda: write(Alive()), OSError)


def start_beat(
    beat: Callable[[], object],
    reader_is_gone: type[Exception],
    end: threading.Event | None = None,
) -> threading.Thread:
    """Call a function once a second on a thread, until it raises an error, or until an event."""

    def run() -> None:
        name_own_thread()
        pause = end or threading.Event()
        with contextlib.suppress(reader_is_gone):
            while not pause.wait(_BEAT_SECONDS):
                beat()

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    return thread


def leave_owner() -> None:
    """Tell nothing any more: this process is a copy of one that has an owner."""
    _owners.clear()


def listen(write: Write) -> None:
    """Let a function hear all that this process tells, before its owner does."""
    _owners.insert(0, write)


def tell_owner(word: Callable[[], object]) -> None:
    """Tell the owner, if there is one, a word or another value that it knows."""
    for write in _owners:
        write(word())


def leave_lost(token: str, end: Lost) -> None:
    """Leave the verdict to the owner, if there is one, and end this process."""
    if _owners:
        tell_owner(lambda: Starts(token))
        tell_owner(lambda: end)
        os._exit(1)  # the owner ends the process group
