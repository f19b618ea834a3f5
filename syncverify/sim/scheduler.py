"""Turn-taking between rank threads: one runs, the others wait, none hangs.

Exactly one rank thread executes at any time. It keeps its turn until it blocks in a
simulated operation or ends, so a run depends on nothing but the scenario and the
schedule: no operating system, no clock. Where timing could decide otherwise, `decisions.py`
does: by default, as said. When no rank can move the run ends at once with what each of
them waits for.

Note [A rank that does not come back]
    Code that waits outside of the simulated machine (a sleep, a lock of its own, an
    endless loop) keeps its turn for ever. No schedule can end that, so here, and only
    here, a clock decides, and `patience.py` which: a rank that neither returned its turn
    nor recorded an event for a while is interrupted, and the run ends with the line that
    it stood on.

Note [The step bound]
    A loop whose rounds all pass through the machine (asking for ever whether a collective
    is complete, issuing one after the other) has turns, and still no end. So steps are
    counted, turns and collectives, and a run has a number of them. No clock is involved:
    the same run ends at the same step.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from syncverify.sim.decisions import Decisions
from syncverify.sim.moves import Access
from syncverify.sim.patience import Patience
from syncverify.sim.stalls import Position, Stall, Wait, deadlock, endless
from syncverify.sourcelines import outermost_frames

HANG_TIMEOUT_SECONDS = 5.0
# Many times what a rank of a large scenario takes, and still a fraction of a second.
MAX_STEPS_PER_RANK = 5_000
_GRACE_SECONDS = 1.0


class RunEndedError(BaseException):
    """Unwinds a rank thread after the run has ended; nobody may swallow it."""


@dataclass(slots=True)
class RankThread:
    """One rank's thread and how it stands.

    Attributes:
        rank: Global rank.
        thread: The thread.
        turn: Released by the scheduler to let it run.
        ready: Tells whether a blocked rank can go on.
        wait: What it waits or asks for; None while it runs.
        finished: Whether its program has ended, one way or another.
        error: What its program raised.
    """

    rank: int
    thread: threading.Thread
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ready: Callable[[], bool] | None = None
    wait: Wait | None = None
    finished: bool = False
    error: BaseException | None = None

    def can_run(self) -> bool:
        """Tell whether handing it the turn would make progress."""
        return not self.finished and (self.ready is None or self.ready())

    def stack(self) -> list[str]:
        """List the subject's lines that it stands on, outermost call first."""
        frame = sys._current_frames().get(self.thread.ident or 0)  # documented
        return outermost_frames(traceback.extract_stack(frame)) if frame else []


class Scheduler:
    """Runs one program per rank, in turns.

    Args:
        num_ranks: Number of ranks.
        progress: Returns a number that grows while ranks make progress.
        decisions: Where timing decides; None takes option 0 everywhere.
        hang_timeout_seconds: How long a rank may work or wait without progress, each;
            see `Patience`.
        max_steps_per_rank: How many steps a run may take, for each of its ranks.
    """

    def __init__(
        self,
        num_ranks: int,
        *,
        progress: Callable[[], int],
        decisions: Decisions | None = None,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
        max_steps_per_rank: int = MAX_STEPS_PER_RANK,
    ) -> None:
        self._num_ranks = num_ranks
        self._patience = Patience(hang_timeout_seconds, progress)
        self._decisions = decisions or Decisions()
        self._next: int | None = None
        self._ranks: list[RankThread] = []
        self._returned = threading.Semaphore(0)
        self._ended = False
        self._steps_left = max_steps_per_rank * num_ranks
        self._stall: Stall | None = None

    def run(
        self, program: Callable[[int], None]
    ) -> tuple[Sequence[RankThread], Stall | None]:
        """Run `program(rank)` on every rank until all ended or none can go on.

        Args:
            program: Called on each rank's own thread.

        Returns:
            How each rank ended, and why the run was ended early, if it was.
        """
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
            stall = self._take_turns()
        finally:
            self._end()
        return self._ranks, stall

    def block_until(self, ready: Callable[[], bool], wait: Wait) -> None:
        """Give the turn away until `ready()`; called on a rank's own thread.

        Args:
            ready: Asked each time the turn could come back.
            wait: Said when it never does.

        Raises:
            RunEndedError: The run has ended meanwhile.
        """
        if ready():
            self.offer_turn(ready, wait)
        else:
            self._give_turn(ready, wait)
        self.touch(wait.thing, Access.AWAIT)

    def offer_turn(
        self, ready: Callable[[], bool] | None = None, wait: Wait | None = None
    ) -> None:
        """Keep the turn, unless a schedule says otherwise.

        Called before a rank touches what others touch as well, so that they can be first.

        Args:
            ready: Whether it can go on, if it waits for something.
            wait: What it waits for.

        Raises:
            RunEndedError: The run has ended meanwhile.
        """
        if self._ended:
            raise RunEndedError
        rank = _current_rank()
        others = self._runnable(rank) if self._decisions.is_open else ()
        options = [rank, *(other for other in others if other != rank)]
        chosen = self._decisions.next_rank(options)
        if chosen != rank:
            self._next = chosen
            self._give_turn(ready, wait)

    def touch(self, thing: str, access: Access) -> None:
        """Note that this rank touches what ranks share, since it last offered its turn.

        Args:
            thing: Its name, the same in every run and on every rank.
            access: How.
        """
        self._decisions.touch(thing, access)

    def poll(self, kind: str, wait: Wait, is_done: Callable[[], bool]) -> bool:
        """Let others move on, then tell the host whether a thing is done.

        Args:
            kind: Name of the question, for the record.
            wait: What it is about; said when the host asks for ever.
            is_done: Whether "yes" is a legal answer.

        Returns:
            False also where it is done and a schedule says that it does not show yet.
        """
        self._decisions.ask(_current_rank(), wait.thing, is_done)
        self.yield_turn(wait)
        return self._decisions.answer(_current_rank(), kind)

    def decide(self, kind: str, num_options: int, meanings: Sequence[str] = ()) -> int:
        """Choose what timing chooses; called on a rank's own thread.

        Args:
            kind: Name of the decision, for the record.
            num_options: How many legal options there are; 0 is what happens by default.
            meanings: The options in words, for reports.

        Returns:
            The number of the option.
        """
        return self._decisions.decide(kind, num_options, meanings)

    def yield_turn(self, wait: Wait | None = None) -> None:
        """Let other ranks move on; called where a host polls for completion.

        Args:
            wait: What it polls for; said when it does so for ever.

        Raises:
            RunEndedError: The run has ended meanwhile.
        """
        self._give_turn(None, wait)

    def count_step(self) -> None:
        """Count an operation of a rank, on its own thread; see Note [The step bound].

        Raises:
            RunEndedError: It was one too many, or the run has ended meanwhile.
        """
        self._steps_left -= 1
        if self._steps_left < 0 and self._stall is None:
            blocked = {own.rank for own in self._ranks if not own.can_run()}
            self._stall = endless(self._positions(), frozenset(blocked))
        if self._ended or self._stall is not None:
            raise RunEndedError

    def _give_turn(self, ready: Callable[[], bool] | None, wait: Wait | None) -> None:
        if self._ended:
            raise RunEndedError
        own = self._ranks[_current_rank()]
        own.ready, own.wait = ready, wait
        self.count_step()
        self._returned.release()
        own.turn.acquire()
        own.ready = own.wait = None
        if self._ended:
            raise RunEndedError

    def _run_rank(self, rank: int, program: Callable[[int], None]) -> None:
        enter_rank(rank)
        own = self._ranks[rank]
        own.turn.acquire()
        try:
            if not self._ended:
                program(rank)
        except BaseException as error:  # noqa: BLE001  # handed on, unchanged
            # What is raised after the end, while cleaning up, follows from it.
            own.error = RunEndedError() if self._ended else error
        finally:
            own.finished = True
            self._returned.release()

    def _take_turns(self) -> Stall | None:
        last = -1
        while any(not own.finished for own in self._ranks):
            chosen = self._choose(last)
            if chosen is None:
                return deadlock(self._positions())
            last = chosen.rank
            chosen.turn.release()
            if not self._await_return():
                stack = tuple(chosen.stack())
                _interrupt(chosen.thread)
                return Stall("never_returns", (chosen.rank,), stack)
            if chosen.error is not None:
                break
        return self._stall

    def _choose(self, last: int) -> RankThread | None:
        if self._next is not None:  # chosen when another rank passed its turn on
            chosen, self._next = self._next, None
            return self._ranks[chosen]
        runnable = self._runnable(last)
        options = [*runnable] if self._decisions.is_open else [*islice(runnable, 1)]
        return self._ranks[self._decisions.next_rank(options)] if options else None

    def _runnable(self, last: int) -> Iterator[int]:
        """Yield the ranks that can move, in the order in which they take turns."""
        order = ((last + 1 + i) % self._num_ranks for i in range(self._num_ranks))
        return (rank for rank in order if self._ranks[rank].can_run())

    def _await_return(self) -> bool:
        """Wait for the turn; see Note [A rank that does not come back]."""
        self._patience.renew()
        while not self._returned.acquire(timeout=self._patience.window_seconds):
            if self._patience.is_over():
                return False
        return True

    def _positions(self) -> list[Position]:
        return [
            Position(own.rank, own.finished, own.wait, _innermost(own))
            for own in self._ranks
        ]

    def _end(self) -> None:
        """Unwind every rank thread that still lives."""
        self._ended = True
        for own in self._ranks:
            if not own.finished:
                own.turn.release()
            # Joined in any case: a thread that has just finished may still be closing down,
            # where an interrupt would do harm.
            own.thread.join(_GRACE_SECONDS)
            if own.thread.is_alive():
                _interrupt(own.thread)
                own.thread.join(_GRACE_SECONDS)
            # A thread that sits in a blocking call of its own cannot be unwound from
            # outside; as a daemon it ends with the process, and takes no more turns.


_THREAD = threading.local()


def own_rank() -> int | None:
    """Return the rank that the calling thread acts for; None on any other thread."""
    return getattr(_THREAD, "rank", None)


def enter_rank(rank: int | None) -> None:
    """Say which rank the calling thread acts for."""
    _THREAD.rank = rank


def _current_rank() -> int:
    rank: int = _THREAD.rank
    return rank


def _innermost(own: RankThread) -> str:
    stack = own.stack()
    return stack[-1] if stack else "unknown line"


def _interrupt(thread: threading.Thread) -> None:
    # The C API's way to raise in another thread; it takes effect at the next bytecode.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(RunEndedError)
    )
