"""The link of a process that plays scenarios to the process that owns the command.

A process has one owner or none, so the link belongs to the process; `syncverify.command.owner`
reads the other end. Where there is no owner, nothing is told.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Literal

from syncverify.processes.child_process import end_when_closed

# A word and its text: the token of the scenario that starts, the exit code of the end.
Word = Literal["alive", "plays", "ends"]
_BEAT_SECONDS = 1.0


class _Link:
    """Writes lines to the owner; a thread tells once a second that Python runs here."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def tell(self, word: Word, text: str) -> None:
        line = f"{word} {text}\n".encode()
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]

    def _beat(self) -> None:
        pause = threading.Event()
        while not pause.wait(_BEAT_SECONDS):
            self.tell("alive", "")


_links: list[_Link] = []


def link_to_owner(descriptor: int, lifeline: int) -> None:
    """Connect this process, as the leader of a new process group, with its owner.

    Args:
        descriptor: Writing end of the pipe that the owner reads.
        lifeline: Reading end of a pipe of which the owner alone holds the other end; the
            kernel ends the group with the owner.
    """
    os.setpgid(0, 0)
    end_when_closed(lifeline, -os.getpid())
    _links[:] = [_Link(descriptor)]


def tell_owner(word: Word, text: Callable[[], str]) -> None:
    """Tell the owner, if there is one, a word and its text."""
    for link in _links:
        link.tell(word, text())
