"""The silence of a process, and whether the process is stuck or waits for its machine."""

from __future__ import annotations

import time

from syncverify.processes.process_state import processor_seconds
from syncverify.processes.thread_demand import ThreadDemand

# Share of the time. Threads that wait for the GIL wake up two hundred times a second.
_IDLE_SHARE = 0.05
_CLOCK_SECONDS = 0.01  # the kernel counts processor time in such units
# Share of the bound: a call may begin a second after the last word.
_SPENT_SHARE = 0.8
_MAX_BOUNDS = 12
_TICK_SECONDS = 0.5


class Silence:
    """How long a process has said nothing, and what it did meanwhile.

    A process that is stuck sleeps with all its threads, or uses its processor time up. One
    that waits for the disk, for memory that was swapped out, or for its turn on a busy
    machine, does neither.

    Args:
        pid: The process.

    Attributes:
        seconds: Time since its last word.
        longest: Longest silence that a word has ended.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._demand = ThreadDemand(pid)
        self.seconds = self.longest = 0.0
        self._begin()

    def _begin(self) -> None:
        self.seconds = self._idle_seconds = 0.0
        self._began = self._asked = processor_seconds(self._pid)

    def end(self) -> None:
        """Note a word."""
        self.longest = max(self.longest, self.seconds)
        self._begin()

    def go_on(self, seconds: float) -> None:
        """Note some more seconds without a word."""
        self.seconds += seconds
        used = processor_seconds(self._pid) - self._asked
        self._asked += used
        _, is_ready = self._demand.look(is_silent=True)
        if used <= _IDLE_SHARE * seconds + _CLOCK_SECONDS and not is_ready:
            self._idle_seconds += seconds
        else:
            self._idle_seconds = 0.0

    def shows_a_hang(self, bound: float) -> bool:
        """Tell whether the process is stuck, after so many seconds of silence at least."""
        if self.seconds < bound:
            return False
        is_spent = self._asked - self._began >= _SPENT_SHARE * bound
        is_idle = self._idle_seconds >= bound / 2
        return is_spent or is_idle or self.seconds >= _MAX_BOUNDS * bound


class Silences:
    """The silences of several processes, each from its first word on.

    Args:
        bound: Seconds of silence after which a process may be stuck.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._silences: dict[int, Silence] = {}
        self._speaking: set[int] = set()
        self._looked = time.monotonic()

    def hear(self, pid: int) -> None:
        """Note a word of a process."""
        self._speaking.add(pid)

    def forget(self, pid: int) -> None:
        """Expect no further word of a process."""
        self._silences.pop(pid, None)
        self._speaking.discard(pid)

    def stuck(self) -> int | None:
        """Return a process that is stuck, if there is one; ask twice a second or more."""
        passed = time.monotonic() - self._looked
        if passed < _TICK_SECONDS:
            return None
        self._looked += passed
        for pid in self._speaking:
            self._silences.setdefault(pid, Silence(pid)).end()
        for pid in self._silences.keys() - self._speaking:
            # Where this process did not run either, the clock went on.
            self._silences[pid].go_on(min(passed, 4 * _TICK_SECONDS))
        self._speaking.clear()
        stuck = (
            p for p, each in self._silences.items() if each.shows_a_hang(self._bound)
        )
        return next(stuck, None)
