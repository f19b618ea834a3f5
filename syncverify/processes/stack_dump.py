"""The Python stacks of a process that does not answer, written by a signal handler in C.

Note [Stacks of a process in which Python does not run]
    No thread of such a process can look at another one. `faulthandler` writes all stacks in
    a signal handler that needs no Python. It writes to the descriptor on which the process
    talks to its parent: no thread there writes words meanwhile, and no file is left behind.

    The signal is a real-time signal. Programs and schedulers of clusters use SIGUSR1 and
    SIGUSR2, and glibc uses the lowest real-time signals. A subject with a handler for this
    signal loses no more than the lines in the report.

    The signal ends the process after the dump, by its default action (`chain=True`).
    Otherwise the call in C would return early (EINTR), and the process would play on. The
    end also closes the descriptor, which tells the parent that the dump is complete.

    macOS has no real-time signals, and reports there have no such lines.
"""

import contextlib
import faulthandler
import os
import select
import signal
import sys
import tempfile
import time

_SIGNAL = signal.SIGRTMAX - 5 if sys.platform == "linux" else 0
# A child of the subject, or a handler of the subject, may keep the descriptor open.
_PATIENCE_SECONDS = 2.0
_MAX_BYTES = 2**20  # 100 threads of 100 frames, the most that faulthandler writes


def dump_on_request(descriptor: int) -> None:
    """Let this process write its stacks to a descriptor, and end, when its parent asks."""
    if _SIGNAL:
        faulthandler.register(_SIGNAL, descriptor, all_threads=True, chain=True)


def take_dump(pid: int, descriptor: int) -> str:
    """Return the stacks of all threads of a process, which ends; "" if it writes none.

    The process has called `dump_on_request`. `descriptor` is the parent's end of the connection
    to it; no message can be read later.
    """
    if not _SIGNAL:
        return ""
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, _SIGNAL)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    dump = b""
    while len(dump) < _MAX_BYTES and time.monotonic() < deadline:
        if select.select([descriptor], [], [], _PATIENCE_SECONDS / 20)[0]:
            with contextlib.suppress(ConnectionResetError):
                if data := os.read(descriptor, 2**16):
                    dump += data
                    continue
            break
    return dump.decode("unicode_escape", "replace")  # `faulthandler` writes ASCII


class CrashDump:
    """The stack of the thread in which a signal such as SIGSEGV ended a process.

    The parent makes it before it starts the process, and reads it after the end. The file has no
    name. Where Python writes such stacks already, by a wish of the user, it stays with that.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process

    def write_here(self) -> None:
        """Let this process write its stack when such a signal ends it."""
        if not faulthandler.is_enabled():
            faulthandler.enable(self._file, all_threads=False)

    def take(self) -> str:
        """Return the text of `faulthandler`, once; "" if no such signal came."""
        with self._file as file:
            file.seek(0)
            dump = file.read(_MAX_BYTES)
        return dump.decode("unicode_escape", "replace")
