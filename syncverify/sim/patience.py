"""How long a rank may keep its turn: in time of a processor, which others cannot take."""

from __future__ import annotations

import time
from collections.abc import Callable

# Of a window. What else a process does (a progress bar) takes less, and a rank that has to
# share its processor with many gets more.
_IDLE_SHARE = 0.05
# For one that sleeps and wakes without an end.
_MAX_WINDOWS = 12


class Patience:
    """Tells a rank that hangs from one that is slow, or whose processor others use.

    A rank that spins uses the time of a processor up, and one that waits uses none.

    Args:
        window_seconds: How long to wait before each question, and how much time of a
            processor a rank may use without progress.
        progress: Returns what changes with each event that is recorded.
    """

    def __init__(self, window_seconds: float, progress: Callable[[], object]) -> None:
        self.window_seconds = window_seconds
        self._progress = progress
        self.renew()

    def renew(self) -> None:
        """Begin anew: there was progress."""
        self._reached = self._progress()
        self._began = self._asked = time.process_time()
        self._num_windows = 0

    def is_over(self) -> bool:
        """Tell, after a window in which the turn did not come back, whether it will not."""
        if self._progress() != self._reached:
            self.renew()
            return False
        now = time.process_time()
        is_idle = now - self._asked < _IDLE_SHARE * self.window_seconds
        self._asked = now
        self._num_windows += 1
        has_used_up = now - self._began >= self.window_seconds
        return is_idle or has_used_up or self._num_windows >= _MAX_WINDOWS
