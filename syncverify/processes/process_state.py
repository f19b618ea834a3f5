"""Signs of life of a process and of its descendants, as the system shows them.

A process that is gone uses no processor time and is not ready.

Note [A rank may wait for a process]
    A rank that builds an extension waits for a compiler. It uses no processor time then, and
    is as slow as the compiler, and no hang. So work of its descendants counts as work, up to
    the bound for a rank that sleeps and wakes. It never counts as time that the rank has
    spent itself: a build takes longer than a loop that has an end.

    A look lists all processes of the machine, so it is made only where a rank is otherwise
    idle for a window. The first look of a run has none before it, and takes all the time that
    descendants ever used for work of this window. So a hang is seen one window later where a
    process of an earlier scenario has worked, and at the bound beside one that still spins.

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

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

# Far below the two hundred of a thread that waits for the GIL on an idle machine.
_SWITCHES_PER_SECOND = 10.0
_OWN_NAME = "syncverify"
# Names in the kernel of threads that wake up by the clock. A test looks whether gloo still gives
# its loop this one.
LOOP_OF_GLOO = "gloo_tcp_loop"
_POLLING = frozenset({_OWN_NAME, LOOP_OF_GLOO})
_SERVED_SHARE = 0.5


class _Thread(NamedTuple):
    """One thread at one moment."""

    state: str  # letter of proc_pid_status(5): R runs or queues, D waits for a disk
    queued_seconds: float  # for which it was ready and had no processor
    switches: int  # how often it went to sleep by itself
    polls: bool = False  # it wakes up by the clock, to see whether it has work


class Demand(NamedTuple):
    """The demand of the threads of a process in one window."""

    queued_seconds: float = 0.0
    # A thread runs, queues, or waits for a disk or for memory that was swapped out.
    is_ready: bool = False


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

        Where no Python code of the process answers, threads that wait for the GIL ask for nothing.
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
    with suppress(OSError):  # no `/proc`
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


_IF_IT_LIVES = suppress(psutil.Error)
_READY = {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
_HALTED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}


@dataclass(frozen=True, slots=True)
class Work:
    """The work of all descendants of a process."""

    # Of a processor, so far. It shrinks when one ends that nobody waits for.
    seconds: float = 0.0
    is_ready: bool = False  # one runs, queues for a processor, or waits for a disk


class LocalProcess:
    """A process of this machine, as the system shows it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def work_of_descendants(self) -> Work:
        """Return the work of the processes that the process has started, and of theirs."""
        seconds, is_ready = 0.0, False
        with _IF_IT_LIVES:
            process = psutil.Process(self.pid)
            seconds = sum(process.cpu_times()[2:4])  # of children that have ended
            for each in process.children(recursive=True):
                with _IF_IT_LIVES:
                    seconds += sum(each.cpu_times()[:4])
                    is_ready |= each.status() in _READY
        return Work(seconds, is_ready)

    def processor_seconds(self) -> float:
        """Return the processor time that the process has used, without its children."""
        with _IF_IT_LIVES:
            return sum(psutil.Process(self.pid).cpu_times()[:2])
        return 0.0

    def is_stopped(self) -> bool:
        """Tell whether a signal such as SIGSTOP, or a debugger, keeps it from running."""
        with _IF_IT_LIVES:
            return psutil.Process(self.pid).status() in _HALTED
        return False

    def why_silent(self) -> str:
        """Say why the process does not answer, though a thread of it would if Python ran."""
        return words_of_silence(is_stopped=self.is_stopped())


def words_of_silence(*, is_stopped: bool) -> str:
    """Say why a process does not answer, by whether a signal has stopped it."""
    if is_stopped:
        return "does not answer: a signal has stopped it"
    return "does not answer: it is in C code that keeps Python from running"
