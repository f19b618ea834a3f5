"""A pool of processes that end when the command that started them ends.

`ProcessPoolExecutor` runs the calls. This module adds three things: an error or an interrupt
ends running calls at once, a process ends when its parent is killed, and one in which Python
does not run any more ends the calls.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import TypeVar

from syncverify.processes.child_process import end_when_closed, interrupts_blocked
from syncverify.processes.owner_link import SILENCE_SECONDS, Word, link_to_owner
from syncverify.processes.process_state import why_silent
from syncverify.processes.silence import Silences

_POLL_SECONDS = 0.5
_MAX_WORD_BYTES = 4096  # PIPE_BUF: the kernel never mixes the bytes of such writes
Item = TypeVar("Item")
Result = TypeVar("Result")


class SilentProcessError(Exception):
    """Python does not run any more in a process of the pool.

    Attributes:
        token: Token of the last scenario that started there, or "".
        how: How the process is silent, in words.
    """

    def __init__(self, token: str, how: str) -> None:
        super().__init__(f"a process of the pool {how}")
        self.token = token
        self.how = how


def run_in_processes(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    jobs: int,
    context: BaseContext,
) -> Generator[tuple[Item, Result]]:
    """Yield each item with the result of `function`, in the order in which calls end.

    Args:
        function: It, the items and the results can be pickled.
        items: Arguments of the calls.
        jobs: Number of processes.
        context: Start method of the processes.

    Yields:
        An item and its result.

    Raises:
        SilentProcessError: Python does not run any more in a process.
    """
    reading, writing = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_begin, initargs=(writing,)
    )
    words = _Words(reading)
    try:
        # Processes start with interrupts blocked; `end_with_parent` unblocks them there.
        with interrupts_blocked():
            running = {pool.submit(function, item): item for item in items}
        while running:
            done, _ = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
            for call in done:
                yield running.pop(call), call.result()
            words.look()
    except BaseException:
        # shutdown() waits for running calls; kill_workers() is new in Python 3.14. A process
        # that a signal has stopped does not hear SIGTERM.
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        reading.close()
        writing.close()


class _Words:
    """The words that processes of a pool write to one pipe, each in a line after its pid."""

    def __init__(self, reading: Connection) -> None:
        self._reading = reading
        self._silences = Silences(SILENCE_SECONDS)
        self._tokens: dict[int, str] = {}
        self._rest = b""

    def look(self) -> None:
        """Hear all that was written; raise SilentProcessError if a process is stuck."""
        while self._reading.poll():
            data = self._rest + os.read(self._reading.fileno(), 16 * _MAX_WORD_BYTES)
            *lines, self._rest = data.split(b"\n")
            for line in lines:
                pid, word, text = line.decode().split(" ", 2)
                self._silences.hear(int(pid))
                if word == "plays":
                    self._tokens[int(pid)] = text
        stuck = self._silences.stuck()
        if stuck is not None:
            raise SilentProcessError(self._tokens.get(stuck, ""), why_silent(stuck))


def _begin(writing: Connection) -> None:
    """Begin a process of the pool, whose words go to a pipe that all of them share."""
    end_with_parent()

    def write(word: Word, text: str) -> None:
        line = f"{os.getpid()} {word} {text}\n".encode()
        if len(line) <= _MAX_WORD_BYTES:
            os.write(writing.fileno(), line)

    link_to_owner(write)


def end_with_parent() -> None:
    """Let this process end with its parent, and ignore Ctrl-C until then."""
    signal.signal(signal.SIGINT, _leave_to_parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None and os.getpgrp() != os.getpid():
        # See Note [A child ends with its parent]. The kernel ends one process, not a group.
        # A leader of a process group has to end its group too, so it relies on the thread
        # alone.
        end_when_closed(parent.sentinel, os.getpid())
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _leave_to_parent(_number: int, _frame: object) -> None:
    """Ignore the signal.

    A handler does this because child processes would inherit SIG_IGN, and do not inherit a
    handler.
    """


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if os.getpgrp() == os.getpid():
            # the group holds all processes that this process started
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
