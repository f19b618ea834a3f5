"""The scheduler of rank threads: one rank runs, the others wait, no rank hangs.

Exactly one rank thread executes at any time. It keeps its turn until it blocks in a
simulated operation or ends, so a run depends on the scenario and the schedule alone, not on
the operating system or a clock. At the points where timing could choose another rank on a
real machine, `decisions.py` chooses; by default the rank keeps its turn. If no rank can
run, the run ends at once, and the stall names the operation that each rank waits in.

Note [A rank that does not come back]
    Code that waits outside of the simulated machine (a sleep, a lock, an endless loop)
    keeps its turn for ever. No schedule can end that, so here, and only here, a clock
    decides: Note [When a silence is a hang]. A rank that for a while neither returned
    its turn nor recorded an event is interrupted, and the run ends with the rank's line.

Note [The step bound]
    Some loops pass through the machine in every round (asking for ever whether a collective
    is complete, issuing one collective after the other): they have turns, and no end. So
    turns and collectives are counted as steps, and a run may take a fixed number of them.
    A long program gets a large number. So that its polls end soon, a run also ends after
    fewer steps in which no rank records anything.
    No clock is involved: the same run ends at the same step.
"""

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import NamedTuple

from syncverify.errors import RunEndedError
from syncverify.processes.silence import (
    HANG_TIMEOUT_SECONDS,
    Silence,
    ThisProcess,
    pause_seconds,
)
from syncverify.processes.thread_signal import Signal
from syncverify.sim.turns.decisions import SECONDS_BETWEEN_POLLS, Decisions
from syncverify.sim.turns.refusals import Refusals, refuse_thread
from syncverify.sim.turns.stalls import (
    UNKNOWN_VALUES,
    IdlePauses,
    Position,
    Stall,
    Wait,
    deadlock,
    endless,
    refusal_of_lock,
)
from syncverify.sim.turns.turn_log import AccessKind
from syncverify.trace.source_lines import CodeLine, NoLine
from syncverify.trace.stacks import outermost_frames

# Many times the steps of a rank in a large scenario, and still a fraction of a second.
MAX_STEPS_PER_RANK = 5_000
# Steps of a rank in which no rank records anything: more than any run of a scenario has.
_MAX_IDLE_STEPS_PER_RANK = 20_000
_GRACE_SECONDS = 1.0


@dataclass(slots=True)
class RankThread:
    """The thread of one rank, and its state."""

    rank: int
    thread: threading.Thread
    turn: Signal = field(default_factory=Signal)  # given to let the rank run
    ready: Callable[[], bool] | None = None  # of a blocked rank: whether it can go on
    wait: Wait | None = None  # operation that the rank waits in or asks about
    finished: bool = False  # the program of the rank has ended, by return or by error
    error: BaseException | None = None

    def can_run(self) -> bool:
        """Tell whether the rank would make progress with the turn."""
        return not self.finished and (self.ready is None or self.ready())

    def stack(self) -> list[CodeLine]:
        """List the subject's lines in the thread's stack, outermost call first."""
        frame = self.frame()
        return outermost_frames(traceback.extract_stack(frame)) if frame else []

    def frame(self) -> FrameType | None:
        """Return the innermost frame of the thread; None if it has ended."""
        return sys._current_frames().get(self.thread.ident or 0)  # documented


class EndedRanks(NamedTuple):
    """The ranks at the end of a run, in their last state."""

    threads: Sequence[RankThread]
    stall: Stall | None  # reason that the run was ended early


class Scheduler:
    """Scheduler of one run: each rank executes the program on its own thread, in turns.

    A method that gives the turn away, or counts, raises `RunEndedError` if the run has ended.

    Args:
        progress: Returns a number that grows while ranks make progress.
        on_turn: Called with the rank that gets the turn, before it does.
        decisions: Decisions in place of timing; None takes option 0 everywhere.
        hang_timeout_seconds: Seconds without progress; see `Silence`.
        max_steps_per_rank: Steps that a run may take, divided by its number of ranks.
        passes_stalls: Whether hosts go on in waits of streams once no rank can run. No value
            of a device is known from then on.
    """

    def __init__(
        self,
        num_ranks: int,
        *,
        progress: Callable[[], int],
        on_turn: Callable[[int], None] = lambda _: None,
        decisions: Decisions | None = None,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
        max_steps_per_rank: int = MAX_STEPS_PER_RANK,
        passes_stalls: bool = False,
        backend: str = "sim",
    ) -> None:
        self._num_ranks = num_ranks
        self._passes_stalls = passes_stalls
        self._has_passed = False
        self._hang_timeout_seconds = hang_timeout_seconds
        self._progress = progress
        self._on_turn = on_turn
        self._silence = Silence(ThisProcess(), tick=0.0)
        self._decisions = decisions or Decisions()
        self._next: int | None = None
        self._ranks: list[RankThread] = []
        self._returned = Signal()
        self._ended = False
        self._steps_left = max_steps_per_rank * num_ranks
        self._max_idle_steps = _MAX_IDLE_STEPS_PER_RANK * num_ranks
        self._progress_before = -1
        self._pauses = IdlePauses(hang_timeout_seconds, [ThisProcess()])
        self._stall: Stall | None = None
        self.refusals = Refusals(backend, self._returned.give)

    def run(self, program: Callable[[int], None]) -> EndedRanks:
        """Return the ranks once `program(rank)` has ended on all, or none can go on.

        Raises:
            EnvironmentNotSupportedError: The machine refused a call, whatever came of that,
                or a rank waits for a lock that ranks share as threads.
        """
        with self.refusals.of_the_process():
            stall = self._run_threads(program)
        if self.refusals.first is not None:
            raise self.refusals.first
        return EndedRanks(self._ranks, stall)

    def _run_threads(self, program: Callable[[int], None]) -> Stall | None:
        for rank in range(self._num_ranks):
            thread = threading.Thread(
                target=self._run_rank,
                args=(rank, program),
                name=f"rank {rank}",
                daemon=True,
            )
            self._ranks.append(RankThread(rank, thread))
            thread.start()
        try:
            return self._take_turns()
        finally:
            self._end()

    def block_until(self, ready: Callable[[], bool], wait: Wait) -> None:
        """Give the turn away until `ready()`; called on the thread of the rank."""
        ready = self._passing(ready, wait)
        if ready():
            self.offer_turn(ready, wait)
        else:
            self._give_turn(ready, wait)
        self.note_access(wait.resource, AccessKind.AWAIT)

    def _passing(self, ready: Callable[[], bool], wait: Wait) -> Callable[[], bool]:
        if not (self._passes_stalls and wait.is_of_stream):
            return ready
        return lambda: self._has_passed or ready()

    def require_values(self) -> None:
        """Let a host read values of a device; where none is known, it stands still."""
        if self._has_passed:
            self._give_turn(lambda: False, UNKNOWN_VALUES)

    def offer_turn(
        self, ready: Callable[[], bool] | None = None, wait: Wait | None = None
    ) -> None:
        """Keep the turn, unless a schedule says otherwise.

        Called before a rank accesses a shared resource, so that other ranks can be first. A
        rank that waits for a resource says with `ready` whether it can go on.

        Raises:
            RunEndedError: The run has ended meanwhile.
        """
        rank = self._current_rank()
        if self._ended:
            raise RunEndedError
        others = self._runnable(rank) if self._decisions.is_open else ()
        options = [rank, *(other for other in others if other != rank)]
        chosen = self._decisions.next_rank(options)
        if chosen != rank:
            self._next = chosen
            self._give_turn(ready, wait)

    def note_access(self, resource: str, access: AccessKind) -> None:
        """Note an access of the current turn to a resource that ranks share."""
        self._decisions.note_access(resource, access)

    def hides(self, resource: str) -> bool:
        """Tell whether a host that asks hears "not yet" at once, and no other rank runs before."""
        hides = self._decisions.hides(self._current_rank(), resource)
        if hides:
            pass_seconds(SECONDS_BETWEEN_POLLS)
        return hides

    def poll(self, kind: str, wait: Wait, is_done: Callable[[], bool]) -> bool:
        """Return whether a resource is done, as the schedule has it, once other ranks have run."""
        self.require_values()
        if self.hides(wait.resource):
            return False
        self._decisions.ask(self._current_rank(), wait.resource, is_done)
        self.yield_turn(wait)
        return self._decisions.answer(self._current_rank(), kind)

    def yield_turn(self, wait: Wait | None = None) -> None:
        """Let other ranks run; called where a host polls for completion."""
        self._give_turn(None, wait)

    def count_step(self) -> None:
        """Count an operation, on the thread of its rank; see Note [The step bound]."""
        self._current_rank()
        self._steps_left -= 1
        self._end_if(self._steps_left < 0 or self._is_idle())

    def note_pause(self, seconds: float) -> None:
        """Note that the host has slept, after it has let other ranks run."""
        self._end_if(self._pauses.are_over(seconds, self._progress()))

    def _end_if(self, is_endless: bool) -> None:  # noqa: FBT001  # the one argument
        if is_endless and self._stall is None:
            blocked = {own.rank for own in self._ranks if not own.can_run()}
            self._stall = endless(self._positions(), frozenset(blocked))
        if self._ended or self._stall or self.refusals.first:
            raise RunEndedError

    def _is_idle(self) -> bool:
        """Tell, once in `_max_idle_steps`, whether no rank has recorded anything since the last."""
        if self._steps_left % self._max_idle_steps:
            return False
        before, self._progress_before = self._progress_before, self._progress()
        return before == self._progress_before

    def _current_rank(self) -> int:
        rank = own_rank()
        if rank is None:
            refuse_thread()
        return rank

    def _give_turn(self, ready: Callable[[], bool] | None, wait: Wait | None) -> None:
        own = self._ranks[self._current_rank()]
        if self._ended:
            raise RunEndedError
        own.ready, own.wait = ready, wait
        self.count_step()
        # From here on another rank may run: this thread touches nothing shared until the
        # scheduler gives it the turn again.
        self._returned.give()
        own.turn.take()
        own.ready = own.wait = None
        if self._ended:
            raise RunEndedError

    def _run_rank(self, rank: int, program: Callable[[int], None]) -> None:
        enter_rank(rank)
        own = self._ranks[rank]
        own.turn.take()
        try:
            if not self._ended:
                program(rank)
        except BaseException as error:  # noqa: BLE001  # handed on, unchanged
            # An error after the end of the run, while cleaning up, follows from that end.
            own.error = RunEndedError() if self._ended else error
        finally:
            own.finished = True
            self._returned.give()

    def _take_turns(self) -> Stall | None:
        last = -1
        while any(not own.finished for own in self._ranks):
            chosen = self._choose(last)
            if chosen is None and self._passes_stalls and not self._has_passed:
                self._has_passed = True
                continue
            if chosen is None:
                return deadlock(self._positions())
            last = chosen.rank
            self._on_turn(last)
            chosen.turn.give()
            if not self._await_return():
                stack = tuple(chosen.stack())
                if self._num_ranks > 1:
                    self.refusals.note(refusal_of_lock(last, chosen.frame()))
                interrupt_thread(chosen.thread)
                return Stall("never_returns", (chosen.rank,), stack)
            if chosen.error is not None or self.refusals.first is not None:
                break
        return self._stall

    def _choose(self, last: int) -> RankThread | None:
        if self._next is not None:  # chosen when a rank gave its turn away
            chosen, self._next = self._next, None
            return self._ranks[chosen]
        runnable = self._runnable(last)
        options = [*runnable] if self._decisions.is_open else [*islice(runnable, 1)]
        return self._ranks[self._decisions.next_rank(options)] if options else None

    def _runnable(self, last: int) -> Iterator[int]:
        """Yield the ranks that can run, in round-robin order after the last one."""
        order = ((last + 1 + i) % self._num_ranks for i in range(self._num_ranks))
        return (rank for rank in order if self._ranks[rank].can_run())

    def _await_return(self) -> bool:
        """Wait for the turn; see Note [A rank that does not come back]."""
        window = self._hang_timeout_seconds
        pause = pause_seconds(window)
        self._silence.end(self._progress())
        while not self._silence.shows_a_hang(window):
            if self._returned.take(timeout=pause):
                return True
            if self._silence.has_moved(self._progress()):
                continue
            if self._returned.take(timeout=window - pause):
                return True
            if not self._silence.has_moved(self._progress()):
                self._silence.go_on(window, is_silent=False)
        # The rank may have come back during the look, which takes long on a busy machine.
        return self._returned.take(timeout=0)

    def _positions(self) -> list[Position]:
        return [
            Position(own.rank, own.finished, own.wait, _innermost(own))
            for own in self._ranks
        ]

    def _end(self) -> None:
        """Unwind every rank thread that is still alive."""
        self._ended = True
        for own in self._ranks:
            if not own.finished:
                self._on_turn(own.rank)
                own.turn.give()
            # Joined in any case: a thread that has just finished may still be shutting down,
            # and an interrupt there would do harm.
            own.thread.join(_GRACE_SECONDS)
            if own.thread.is_alive():
                interrupt_thread(own.thread)
                own.thread.join(_GRACE_SECONDS)
            # A thread in a blocking call outside of the machine cannot be unwound. As a
            # daemon it ends with the process, and it gets no further turn.


_THREAD = threading.local()


def own_rank() -> int | None:
    """Return the rank that the calling thread acts for; None on any other thread."""
    return getattr(_THREAD, "rank", None)


def enter_rank(rank: int | None) -> None:
    """Say which rank the calling thread acts for."""
    _THREAD.rank = rank


def passed_seconds() -> float:
    """Return the time that has passed for the rank of this thread, in pauses and between polls.

    The host does not wait for it: the clocks of Python's `time` are ahead by it on the rank. The
    threads of a run are new ones, so each run begins at 0.
    """
    seconds: float = getattr(_THREAD, "seconds", 0.0)
    return seconds


def pass_seconds(seconds: float) -> None:
    """Let time pass for the rank of this thread."""
    _THREAD.seconds = passed_seconds() + seconds


def _innermost(own: RankThread) -> CodeLine | NoLine:
    stack = own.stack()
    return stack[-1] if stack else NoLine.UNKNOWN


def interrupt_thread(thread: threading.Thread) -> None:
    """Raise `RunEndedError` in another thread, at its next bytecode.

    The interpreter has one flag for "some thread is interrupted", and only an interrupted
    thread clears it. While the flag is set, Python 3.11 with a trace function (a debugger,
    coverage, Hypothesis' explanations) never gets past the start of a Python function. So
    this thread interrupts itself as well, which clears the flag, and calls no Python function
    between the two. The other thread keeps its interrupt, and sets the flag again when it
    takes the interpreter's lock.
    """
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    error = ctypes.py_object(RunEndedError)
    other = ctypes.c_ulong(thread.ident or 0)
    this = ctypes.c_ulong(threading.get_ident())
    try:
        raise_in(other, error)
        raise_in(this, error)
        while True:  # until the next bytecode that looks at the flag
            pass
    except RunEndedError:
        pass
