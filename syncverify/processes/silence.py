"""The one rule by which a silent process, or a rank without progress, counts as hung.

Note [When a silence is a hang]
    A clock alone would accuse right subjects on a busy machine, so processor time decides:

    | after a silence as long as the bound | finding |
    |---|---|
    | for the last half of the bound it used no processor time and waited for none | `idle` |
    | by itself it has used nine tenths of the bound in processor time | `spent`: it spins |
    | the silence is twelve times the bound | `endless`: it sleeps and wakes |
    | otherwise it works, or waits for a processor, a disk or swapped memory | `slow` |

    A process whose descendants work is not idle: Note [A rank may wait for a process].
"""

import os
import time
from typing import Literal, Protocol

from typing_extensions import override

from syncverify.processes.process_state import Demand, LocalProcess, ThreadDemand, Work

# Under torchrun, a GPU may keep a process busy for long.
SILENCE_SECONDS = 60.0 if "TORCHELASTIC_RUN_ID" in os.environ else 7.0
# Before the first scenario: on a busy machine, an import of torch takes a minute.
START_SECONDS = 120.0
# Bound for a rank that keeps its turn, or for all ranks of a scenario, on one machine.
HANG_TIMEOUT_SECONDS = 5.0
TICK_SECONDS = 0.5  # between two looks at a silent process
# Share of the time that an idle process may use. A progress bar uses less, and so do threads that
# wait for the GIL, which wake up two hundred times a second.
_IDLE_SHARE = 0.05
_CLOCK_SECONDS = 0.01  # the kernel counts processor time in such units
# Share of the bound: a call may begin a second after the last word, and the machine is busy.
_SPENT_SHARE = 0.9
_MAX_BOUNDS = 12
_DEMAND_AGE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 1.0
_PAUSE_SHARE = 0.2

SilenceKind = Literal["slow", "idle", "spent", "endless"]


def pause_seconds(window: float) -> float:
    """Return the time between two questions for progress, far below a window."""
    return min(_MAX_PAUSE_SECONDS, _PAUSE_SHARE * window)


class Watched(Protocol):
    """A process whose silence is measured."""

    @property
    def pid(self) -> int | None:
        """The process on this machine; None if it is on another one."""

    def processor_seconds(self) -> float:
        """Return the processor time that the process has used."""

    def work_of_descendants(self) -> Work:
        """Return the work of the processes that the process has started."""


class ThisProcess(LocalProcess):
    """This process itself, whose ranks are threads."""

    def __init__(self) -> None:
        super().__init__(os.getpid())

    @override
    def processor_seconds(self) -> float:
        return time.process_time()  # `sim` asks in each turn of a rank


class Silence:
    """The silence of a process, or of a rank without progress: its length, and the work in it.

    Args:
        tick: Least seconds between two looks.
        idle_share: Share of the time that an idle process may use.

    Attributes:
        seconds: Time since the last word.
        idle_seconds: Time of idleness since then, up to now.
        longest: Longest silence that a word has ended.
    """

    def __init__(
        self,
        process: Watched,
        *,
        tick: float = TICK_SECONDS,
        idle_share: float = _IDLE_SHARE,
    ) -> None:
        self._process = process
        self._tick = tick
        self._idle_share = idle_share
        self._demand: ThreadDemand | None = None
        self._demand_was_renewed = float("-inf")
        self._is_silent = False
        self._helped_seconds = 0.0
        self.seconds = self.longest = 0.0
        self.end()

    def end(self, progress: object = None) -> None:
        """Note a word, or a value that changes with the progress."""
        self._progress = progress
        self.longest = max(self.longest, self.seconds)
        self.seconds = self.idle_seconds = self._unseen_seconds = 0.0
        self._began = self._seen = self._process.processor_seconds()
        # The files of all threads are read, and `sim` has a word in each turn of a rank. An
        # older start of the window makes a process slow rather than idle, for one window.
        if time.monotonic() - self._demand_was_renewed >= _DEMAND_AGE_SECONDS:
            self._demand_since_then(is_silent=False)

    def has_moved(self, progress: object) -> bool:
        """Tell whether the value of the progress is new, which ends the silence."""
        if progress == self._progress:
            return False
        self.end(progress)
        return True

    def go_on(self, seconds: float, *, is_silent: bool = True) -> None:
        """Note some more seconds without a word; silent is a process whose Python does not answer."""
        self.seconds += seconds
        self._unseen_seconds += seconds
        if self._unseen_seconds < 0.9 * self._tick:
            return
        used = self._process.processor_seconds() - self._seen
        queued, is_ready = self._demand_since_then(is_silent=is_silent)
        passed, self._unseen_seconds = self._unseen_seconds, 0.0
        # Within a few units of the clock, the unit alone would make any process idle.
        unit = _CLOCK_SECONDS if passed > 4 * _CLOCK_SECONDS else 0.0
        is_idle = used + queued <= self._idle_share * passed + unit and not is_ready
        self.idle_seconds = self.idle_seconds + passed if is_idle else 0.0
        self._seen += used
        self._is_silent = is_silent

    def finding(self, bound: float, *, idle_bound: float | None = None) -> SilenceKind:
        """Return what the silence shows; see Note [When a silence is a hang].

        Args:
            bound: Seconds; a shorter silence shows nothing.
            idle_bound: Seconds of idleness at the end of the silence that show `idle`; None
                for half of the bound.
        """
        if self.seconds < bound:
            return "slow"
        is_idle = self.idle_seconds >= (idle_bound or bound / 2)
        if is_idle and not self._is_about_to_move(bound):
            return "idle"
        if self.seconds >= _MAX_BOUNDS * bound:
            return "endless"
        is_spent = self._seen - self._began >= _SPENT_SHARE * bound
        return "spent" if is_spent else "slow"

    def shows_a_hang(self, bound: float) -> bool:
        """Tell whether the process is stuck, after so many seconds of silence at least."""
        return self.finding(bound) != "slow"

    def _is_about_to_move(self, bound: float) -> bool:
        """Tell whether descendants worked, or a thread is awake after one has ended."""
        work = self._process.work_of_descendants()
        # A sum shrinks when a descendant ends, so one of them went on.
        used = abs(work.seconds - self._helped_seconds)
        self._helped_seconds = work.seconds
        is_helped = work.is_ready or used >= self._idle_share * bound
        # The threads of a silent rank wake up for the GIL, which shows no progress.
        if not self._is_silent:
            is_helped |= self._demand_since_then(is_silent=False).is_ready
        if is_helped:
            self.idle_seconds = 0.0
        return is_helped

    def _demand_since_then(self, *, is_silent: bool) -> Demand:
        """Return the demand of threads since the last look."""
        self._demand_was_renewed = time.monotonic()
        pid, demand = self._process.pid, self._demand
        if demand is not None and demand.pid == pid:
            return demand.look(is_silent=is_silent)
        if pid is not None:  # it may have been forked meanwhile
            self._demand = ThreadDemand(pid)
        return Demand()
