"""The link of a process that plays scenarios to the process that owns it.

A process has one owner or none, so the link belongs to the process. The owner of a command
is `syncverify.command.owner`; a search in several processes owns those. Where there is no
owner, nothing is told.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Literal

from syncverify.processes.thread_demand import name_own_thread

# A word and its text: the token of the scenario that starts, the end of a search that found
# violations and told them, the exit code of the end, the
# cause and the words of an end that another process met in that scenario. A process that
# waits for one of another command says so, since it sleeps meanwhile.
Word = Literal["alive", "waits", "plays", "found", "ends", "lost"]
Write = Callable[[Word, str], object]
_BEAT_SECONDS = 1.0
# A process that is silent for so long, and sleeps or spins, is stuck. GPUs may keep a
# process busy for long.
SILENCE_SECONDS = 60.0 if "TORCHELASTIC_RUN_ID" in os.environ else 7.0


_owners: list[Write] = []


def link_to_owner(write: Write) -> None:
    """Connect this process with its owner; a thread tells once a second that Python runs.

    `write` sends a word and its text to the owner, from any thread.
    """
    _owners[:] = [write]

    def beat() -> None:
        name_own_thread()
        pause = threading.Event()
        with contextlib.suppress(
            OSError
        ):  # the owner is gone, and this process soon is
            while not pause.wait(_BEAT_SECONDS):
                write("alive", "")

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()


def listen(write: Write) -> None:
    """Let a function hear all that this process tells, before its owner does."""
    _owners.insert(0, write)


def tell_owner(word: Word, text: Callable[[], str]) -> None:
    """Tell the owner, if there is one, a word and its text."""
    for write in _owners:
        write(word, text())


def leave_lost(token: str, cause: str, how: str) -> None:
    """Leave the verdict to the owner, if there is one, and end this process.

    Args:
        token: Token of the scenario in which a process of this one was lost.
        cause: `process_died` or `never_returns`.
        how: The end of that process in words.
    """
    if _owners:
        tell_owner("plays", lambda: token)
        tell_owner("lost", lambda: f"{cause} {how}")
        os._exit(1)  # with all processes of this one
