"""Tell a hung rank from a slow one, by processor time instead of wall time."""

from __future__ import annotations

import time
from collections.abc import Callable

# Share of a window. Other threads of the process (a progress bar) use less processor time,
# and a rank that shares its processor with many others still gets more.
_IDLE_SHARE = 0.05
# Bound for a rank that sleeps and wakes without an end.
_MAX_WINDOWS = 12


class HangDetector:
    """Detector of ranks that hang; slow ranks and busy machines are no hang.

    A rank that spins uses its processor time up. A rank that waits uses none.

    Args:
        window_seconds: Wall time between two questions, and processor time that a rank may
            use without progress.
        progress: Returns a value that changes with each event that is recorded.
    """

    def __init__(self, window_seconds: float, progress: Callable[[], object]) -> None:
        self.window_seconds = window_seconds
        self._progress = progress
        self.renew()

    def renew(self) -> None:
        """Start over: there was progress."""
        self._reached = self._progress()
        self._began = self._asked = time.process_time()
        self._num_windows = 0

    def is_over(self) -> bool:
        """Tell, after a window without the turn coming back, whether the rank hangs."""
        if self._progress() != self._reached:
            self.renew()
            return False
        now = time.process_time()
        is_idle = now - self._asked < _IDLE_SHARE * self.window_seconds
        self._asked = now
        self._num_windows += 1
        has_used_up = now - self._began >= self.window_seconds
        return is_idle or has_used_up or self._num_windows >= _MAX_WINDOWS
