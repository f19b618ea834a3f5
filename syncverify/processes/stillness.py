"""The stillness of a process: neither it nor what it started uses a processor.

A thread of such a process may still say that Python runs. An import that sleeps, or a
`__del__` that waits in the main thread between two scenarios, is no rank of a scenario, and no
other bound ends it.
"""

from __future__ import annotations

from syncverify.processes.process_state import (
    is_ready,
    processor_seconds,
    work_of_descendants,
)

_WINDOW_SECONDS = 5.0
# Far more than the threads of a process use that say that it lives.
_IDLE_SHARE = 0.01


class Stillness:
    """For how long a process and its descendants have slept.

    Args:
        pid: The process.
        bound: Seconds of interest; a look at all processes takes place ten times in them.

    Attributes:
        seconds: Time of sleep so far.
    """

    def __init__(self, pid: int, bound: float) -> None:
        self._pid = pid
        self._window_seconds = min(_WINDOW_SECONDS, bound / 10)
        self._used = 0.0
        self.end()

    def end(self) -> None:
        """Note a sign of work."""
        self.seconds = self._passed = 0.0

    def go_on(self, seconds: float) -> None:
        """Note some more seconds."""
        self._passed += seconds
        if self._passed < self._window_seconds:
            return
        passed, self._passed = self._passed, 0.0
        work = work_of_descendants(self._pid)
        used = processor_seconds(self._pid) + work.seconds
        # A sum that shrinks tells of the end of a process.
        is_still = abs(used - self._used) <= _IDLE_SHARE * passed
        self._used = used
        if is_still and not (work.is_ready or is_ready(self._pid)):
            self.seconds += passed
        else:
            self.end()
