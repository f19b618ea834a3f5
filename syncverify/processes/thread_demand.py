"""The demand of a process' threads for a processor between two looks, as Linux shows it.

Note [Threads that wait for the GIL]
    A thread that waits for the GIL wakes up two hundred times a second, and on a busy machine
    it queues for a processor each time. So it looks as if it were kept from running, while a
    call in C keeps Python from running. Voluntary switches tell the two apart: a thread that
    went to sleep again and again had its turns. A thread that a busy machine keeps from
    running is preempted instead, or not switched at all.

Note [Threads that poll]
    gloo's loop and threads of the harness wake up by the clock, and look whether there is
    anything to do. Such a thread may queue for a processor, or run, at any look in a rank that
    does nothing. So it counts only if it queued for half of the window or more, which happens
    on a busy machine alone. The names of threads in the kernel tell which ones poll.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# Far below the two hundred of a thread that waits for the GIL on an idle machine.
_SWITCHES_PER_SECOND = 10.0
_OWN_NAME = "syncverify"
# Names in the kernel of threads that wake up by the clock. A test looks whether gloo still gives
# its loop this one.
LOOP_OF_GLOO = "gloo_tcp_loop"
_POLLING = frozenset({_OWN_NAME, LOOP_OF_GLOO})
_SERVED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class _Thread:
    """One thread at one moment.

    Attributes:
        state: Letter of proc_pid_status(5): R runs or queues, D waits for a disk.
        queued_seconds: Time for which it was ready and had no processor.
        switches: How often it went to sleep by itself.
        polls: Whether it wakes up by the clock, to see whether there is anything to do.
    """

    state: str
    queued_seconds: float
    switches: int
    polls: bool = False


class Demand(NamedTuple):
    """The demand of the threads of a process in one window.

    Attributes:
        is_ready: Whether a thread is ready now: it runs, queues, or waits for a disk or for
            memory that was swapped out.
    """

    queued_seconds: float
    is_ready: bool


class ThreadDemand:
    """The demand of the threads of a process; none where the kernel has no `/proc`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.renew()

    def renew(self) -> None:
        """Start a new window."""
        self._before, self._began = _threads(self.pid), time.monotonic()

    def look(self, *, is_silent: bool) -> Demand:
        """Look at the window so far, and start a new one.

        Args:
            is_silent: Whether no Python code of the process answers. Then threads that wait
                for the GIL ask for nothing.
        """
        before, began = self._before, self._began
        self.renew()
        seconds = self._began - began
        bound = _SWITCHES_PER_SECOND * seconds
        queued, is_ready = 0.0, False
        for number, now in self._before.items():
            then = before.get(number, now)
            waited = now.queued_seconds - then.queued_seconds
            is_restless = is_silent and now.switches - then.switches > bound
            is_served = now.polls and waited < _SERVED_SHARE * seconds
            asks_for_nothing = is_restless or is_served
            if not asks_for_nothing:
                queued += waited
            is_ready |= now.state == "D" or (now.state == "R" and not asks_for_nothing)
        return Demand(queued, is_ready)


def name_own_thread() -> None:
    """Give the calling thread a name in the kernel; see Note [Threads that poll]."""
    with contextlib.suppress(OSError):  # no `/proc`
        folder = Path(f"/proc/self/task/{threading.get_native_id()}")
        (folder / "comm").write_text(_OWN_NAME)


def _threads(pid: int) -> dict[int, _Thread]:
    """Return the threads by their ids, without this one and those that end meanwhile."""
    try:
        folders = [*Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return {}
    read = {int(each.name): _thread(each) for each in folders}
    read.pop(threading.get_native_id(), None)  # it runs, since it asks
    return {number: each for number, each in read.items() if each is not None}


def _thread(folder: Path) -> _Thread | None:
    try:
        status = (folder / "status").read_text()
        nanoseconds = int((folder / "schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return None
    fields = dict(line.partition(":\t")[::2] for line in status.splitlines())
    switches = int(fields["voluntary_ctxt_switches"])
    polls = fields["Name"] in _POLLING
    return _Thread(fields["State"][0], nanoseconds / 1e9, switches, polls)
