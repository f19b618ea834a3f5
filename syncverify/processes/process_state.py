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
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

_IF_IT_LIVES = suppress(psutil.Error)
_READY = {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
_HALTED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}


@dataclass(frozen=True, slots=True)
class Work:
    """The work of all descendants of a process.

    Attributes:
        seconds: Processor time that they have used so far. It shrinks when one ends that
            nobody waits for.
        is_ready: Whether one runs, queues for a processor, or waits for a disk.
    """

    seconds: float = 0.0
    is_ready: bool = False


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
