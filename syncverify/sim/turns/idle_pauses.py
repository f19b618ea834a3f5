"""Sleeps of ranks while no rank records anything, as in a loop that waits in vain.

A sleep lets other ranks run, and uses no processor time. So a loop of sleeps has turns and no end.
The lengths of the sleeps are summed up, so no clock decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncverify.processes.process_state import Work
from syncverify.processes.silence import Watched

_HELPED_SHARE = 0.05


class IdlePauses:
    """The sum of the sleeps since a rank last recorded anything.

    Args:
        bound_seconds: Sum that a right program never reaches.
        processes: Processes of the ranks. While a descendant of one works, such as a compiler,
            the bound does not count.
    """

    def __init__(self, bound_seconds: float, processes: Sequence[Watched]) -> None:
        self._bound_seconds = bound_seconds
        self._processes = processes
        self._progress = -1
        self._seconds = self._helped_seconds = 0.0

    def are_over(self, seconds: float, progress: int) -> bool:
        """Add a sleep, and tell whether the bound is reached and no descendant works.

        Args:
            seconds: Length of the sleep.
            progress: A number that grows while ranks record anything.

        Returns:
            Whether the run is to end.
        """
        if progress != self._progress:
            self._progress = progress
            self._begin()
        self._seconds += seconds
        if self._seconds < self._bound_seconds:
            return False
        return not self._is_helped()

    def _begin(self) -> None:
        self._seconds = 0.0
        self._helped_seconds = self._work().seconds

    def _is_helped(self) -> bool:
        before = self._helped_seconds
        work = self._work()
        # A sum shrinks when a descendant ends, so one of them went on.
        least = _HELPED_SHARE * self._bound_seconds
        is_helped = work.is_ready or abs(work.seconds - before) >= least
        if is_helped:
            self._begin()
        return is_helped

    def _work(self) -> Work:
        works = [each.work_of_descendants() for each in self._processes]
        seconds = sum(each.seconds for each in works)
        return Work(seconds, any(each.is_ready for each in works))
