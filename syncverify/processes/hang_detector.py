"""Tell a hung rank from a slow one, by processor time instead of wall time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Literal

from syncverify.processes.process_state import Work, work_of_descendants
from syncverify.processes.thread_demand import ThreadDemand

# Share of a window, which other threads of the process (a progress bar) do not reach.
_IDLE_SHARE = 0.05
# Share of a window that a rank spends which spins, beside the work of a busy machine.
_SPENT_SHARE = 0.9
# Bound for a rank that sleeps and wakes without an end.
_MAX_WINDOWS = 12
_DEMAND_AGE_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_PAUSE_SHARE = 0.2

Finding = Literal["moved", "slow", "idle", "spent", "endless"]


class HangDetector:
    """Detector of ranks that hang; slow ranks and busy machines are no hang.

    A rank that spins uses its processor time up. A rank that waits uses none, and asks for
    none: one that only waits for a processor of a busy machine is slow. So is one whose
    descendants work; see Note [A rank may wait for a process].

    Args:
        window_seconds: Wall time between two questions, and processor time that a rank may
            use without progress.
        progress: Returns a value that changes with each event that is recorded.
        used_seconds: Returns the processor time that was used so far; None takes that of
            this process.
        pid: The process of the rank, where the kernel can be asked for it; None if it is on
            another machine.
        helpers: Returns the work of the descendants of the process; None asks the kernel.
    """

    def __init__(
        self,
        window_seconds: float,
        progress: Callable[[], object],
        used_seconds: Callable[[], float] | None = None,
        *,
        pid: int | None = None,
        helpers: Callable[[], Work] | None = None,
    ) -> None:
        self.window_seconds = window_seconds
        self._progress = progress
        self._used_seconds = used_seconds or time.process_time
        self._demand = None if pid is None else ThreadDemand(pid)
        asked = Work if pid is None else partial(work_of_descendants, pid)
        self._helpers = helpers or asked
        self._helped_seconds = 0.0
        self._demand_was_renewed = time.monotonic()
        self.renew()

    def renew(self) -> None:
        """Start over: there was progress."""
        self._reached = self._progress()
        self._began = self._asked = self._used_seconds()
        self._renew_demand()
        self._num_windows = 0

    def is_over(self) -> bool:
        """Tell, after a window without the turn coming back, whether the rank hangs."""
        return self.look() in {"idle", "spent", "endless"}

    def look(self, *, is_silent: bool = False) -> Finding:
        """Look at a window that has passed.

        Args:
            is_silent: Whether the rank was asked, and no Python code of it answered.

        Returns:
            `moved` if there was an event, `idle` if hardly any processor time was used or
            waited for in the window, not by descendants either, `spent` if the rank itself has
            used a whole window of it since the last event, `endless` if there was none in many
            windows, and `slow` otherwise.
        """
        if self.has_moved():
            return "moved"
        now = self._used_seconds()
        queued, is_ready = (
            self._demand.look(is_silent=is_silent) if self._demand else (0.0, False)
        )
        demand = now - self._asked + queued
        is_idle = demand < _IDLE_SHARE * self.window_seconds and not is_ready
        self._asked, self._demand_was_renewed = now, time.monotonic()
        self._num_windows += 1
        if is_idle and not self._is_helped() and (is_silent or not self._is_awake()):
            return "idle"
        if self._num_windows >= _MAX_WINDOWS:
            return "endless"
        is_spent = now - self._began >= _SPENT_SHARE * self.window_seconds
        return "spent" if is_spent else "slow"

    @property
    def pause_seconds(self) -> float:
        """Wall time between two questions whether there was an event, far below a window."""
        return min(_PAUSE_SECONDS, _PAUSE_SHARE * self.window_seconds)

    def has_moved(self) -> bool:
        """Tell whether there was an event; the window starts over then, and not at its end."""
        if self._progress() == self._reached:
            return False
        self.renew()
        return True

    def _is_helped(self) -> bool:
        """Tell whether descendants worked since the last look at them, or are about to."""
        work = self._helpers()
        # A sum that shrinks tells of an end, so one of them went on.
        used = abs(work.seconds - self._helped_seconds)
        self._helped_seconds = work.seconds
        return work.is_ready or used >= _IDLE_SHARE * self.window_seconds

    def _is_awake(self) -> bool:
        """Tell whether a thread is awake by now, as where a descendant has just ended."""
        # Of a rank that is silent this says nothing: its threads wake up for the GIL.
        return self._demand is not None and self._demand.look(is_silent=False)[1]

    def _renew_demand(self) -> None:
        # The files of all threads are read, and `sim` renews at each turn of a rank. An
        # older start of the window makes the rank slow rather than idle, for one window.
        if time.monotonic() - self._demand_was_renewed < _DEMAND_AGE_SECONDS:
            return
        self._demand_was_renewed = time.monotonic()
        if self._demand is not None:
            self._demand.renew()
