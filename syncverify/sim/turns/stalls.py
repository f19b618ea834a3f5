"""Stalls: the reasons for which a run ends early, in words.

A stall names the waiting ranks, the operations that they wait in, and their lines.
"""

import linecache
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, Protocol

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.processes.process_state import Work
from syncverify.processes.silence import Watched
from syncverify.sim.turns.turn_log import AccessKind
from syncverify.trace.run import Detail
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import (
    CodeLine,
    NoLine,
    Origin,
    SourceLine,
    lines_among,
    shown_path,
)


@dataclass(frozen=True, slots=True)
class Wait:
    """The operation that a rank waits in, or asks about."""

    operation: str  # in words
    # Returns the global ranks that have to arrive before the rank goes on.
    missing_ranks: Callable[[], tuple[int, ...]]
    # Name of the awaited resource, the same in every run and on every rank. The rank that
    # completes the resource calls `note_access` with the name.
    resource: str
    line: Origin = NoLine.UNKNOWN  # of the subject that called it
    is_of_stream: bool = False  # a stream of the device waits, and a real host goes on

    @property
    def in_words(self) -> str:
        """Name the missing ranks and the operation."""
        missing = ", ".join(f"rank {rank}" for rank in self.missing_ranks())
        return f"{missing or 'nobody'} in {self.operation}"


# The wait of a host for a value after hosts have passed waits of streams: it never ends.
UNKNOWN_VALUES = Wait("a value of the device", tuple, "values", is_of_stream=True)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank stands when its run ends: its wait, or the line of the subject that it runs."""

    rank: int
    finished: bool
    wait: Wait | None
    line: CodeLine | NoLine = NoLine.UNKNOWN


@dataclass(frozen=True, slots=True)
class Stall:
    """The reason for which the scheduler ended a run early.

    `deadlock` if no rank can run, `never_returns` if a rank kept its turn, `step_bound` if ranks
    ran on without an end: up to the number of steps of a run, or without a record.
    """

    kind: Literal["deadlock", "never_returns", "step_bound"]
    ranks: tuple[int, ...]  # global ranks at fault, as far as the scheduler can tell
    # One a rank, or the stack of the rank that kept its turn.
    details: tuple[Detail, ...]
    # Lines of the subject that the details name in words.
    named: tuple[SourceLine, ...] = ()
    # Real ranks cannot go on either, where a host goes on in a wait of a stream.
    is_certain: bool = True


def deadlock(positions: Sequence[Position]) -> Stall:
    """Return a stall with one line per rank, and the cycle of waits if there is one.

    No rank can run: a rank that has not finished waits.
    """
    waits = {own.rank: own.wait for own in positions if own.wait is not None}
    missing = {rank for wait in waits.values() for rank in wait.missing_ranks()}
    lines = [
        f"rank {own.rank}: "
        + (f"waits for {own.wait.in_words}" if own.wait is not None else "has finished")
        for own in positions
    ]
    if cycle := _cycle(waits):
        lines.append("wait-for cycle: " + " -> ".join(f"rank {rank}" for rank in cycle))
    named = lines_among(wait.line for wait in waits.values())
    finished = {own.rank for own in positions if own.finished}
    may_go_on = any(wait.is_of_stream for wait in waits.values())
    is_certain = not may_go_on or bool(missing & finished)
    ranks, details = tuple(sorted(missing)), tuple(lines)
    return Stall("deadlock", ranks, details, named, is_certain)


def endless(positions: Sequence[Position], blocked: frozenset[int]) -> Stall:
    """Return the stall of ranks that run without an end, with one line per rank.

    The ranks that run are at fault. The ranks of `blocked` could not run.
    """
    lines, named = list[str](), list[Origin]()
    for own in positions:
        if own.finished:
            lines.append(f"rank {own.rank}: has finished")
        elif own.wait is None:
            lines.append(f"rank {own.rank}: goes on at {own.line}")
            named.append(_line(own))
        elif own.rank in blocked:
            lines.append(f"rank {own.rank}: waits for {own.wait.in_words}")
            named.append(own.wait.line)
        else:
            words = f"polls for {own.wait.in_words}; polls at {own.line}"
            lines.append(f"rank {own.rank}: {words}")
            named += [own.wait.line, _line(own)]
    alive = {own.rank for own in positions if not own.finished}
    ranks = tuple(sorted(alive - blocked or alive))
    return Stall("step_bound", ranks, tuple(lines), lines_among(named))


def _line(own: Position) -> Origin:
    return own.line.line if isinstance(own.line, CodeLine) else own.line


def _cycle(waits: dict[int, Wait]) -> list[int]:
    """Return a cycle of waiting ranks; the first rank is repeated at the end.

    A rank that waits for a finished rank is in no cycle: the finished rank is the reason.
    """
    for start in waits:
        walked = [start]
        while True:
            missing = waits[walked[-1]].missing_ranks()
            if not missing or any(rank not in waits for rank in missing):
                break
            if missing[0] in walked:
                return [*walked[walked.index(missing[0]) :], missing[0]]
            walked.append(missing[0])
    return []


class TurnTaking(Protocol):
    """The turns of a run, as its ranks see them."""

    def block_until(self, ready: Callable[[], bool], wait: Wait) -> None:
        """Give the turn away until `ready()`."""

    def offer_turn(
        self, ready: Callable[[], bool] | None = None, wait: Wait | None = None
    ) -> None:
        """Let others be first, where a schedule says so."""

    def yield_turn(self, wait: Wait | None = None) -> None:
        """Let other ranks run."""

    def hides(self, resource: str) -> bool:
        """Tell whether a host that asks hears "not yet" at once, and no other rank runs before."""

    def poll(self, kind: str, wait: Wait, is_done: Callable[[], bool]) -> bool:
        """Let other ranks run, then tell whether a resource is done, as far as the host sees."""

    def note_access(self, resource: str, access: AccessKind) -> None:
        """Note an access of the current turn to a resource that ranks share."""

    def count_step(self) -> None:
        """Count an operation."""

    def note_pause(self, seconds: float) -> None:
        """Note that the host has slept, after it has let other ranks run."""

    def require_values(self) -> None:
        """Let a host read values of a device."""


_HELPED_SHARE = 0.05


class IdlePauses:
    """The sum of the sleeps since a rank last recorded anything.

    A sleep lets other ranks run, and uses no processor time. So a loop of sleeps has turns and no
    end. The lengths of the sleeps are summed up, so no clock decides. A right program never
    reaches the bound, which does not count while a descendant of a process works, such as a
    compiler.
    """

    def __init__(self, bound_seconds: float, processes: Sequence[Watched]) -> None:
        self._bound_seconds = bound_seconds
        self._processes = processes
        self._progress = -1
        self._seconds = self._helped_seconds = 0.0

    def are_over(self, seconds: float, progress: int) -> bool:
        """Return whether the bound is reached with a further sleep, and no descendant works.

        `progress` is a number that grows while ranks record anything.
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


_LOCKS = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Semaphore,
)


def refusal_of_lock(
    rank: int, frame: FrameType | None
) -> EnvironmentNotSupportedError | None:
    """Return a refusal to judge if a rank waits for a lock of a module or a class.

    Another rank may hold the lock in a collective. In a job of processes each rank has a
    lock of its own, and nobody waits. None if the line of the subject in `frame`, the innermost
    one of the rank, names no such lock that is held.
    """
    while frame is not None and not is_subject_line(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    place = f"{shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    words = {*re.findall(r"\w+", text)}
    for name, lock in _shared(frame):
        if name in words and _is_held(lock):
            return EnvironmentNotSupportedError(
                f"rank {rank} waits at {place} for {name}, a lock that all ranks of the sim "
                "backend share, since they are threads of one process; ranks that are "
                "processes have one each, as those of `syncverify record` for a script, and of "
                "`syncverify run --backend gloo` for a class"
            )
    return None


def _shared(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Yield the locks of the frame's module and of the class of its first argument."""
    first = next(iter(frame.f_locals.values()), None)
    for owner in (frame.f_globals, *(vars(each) for each in type(first).__mro__)):
        for name, value in [*owner.items()]:
            if isinstance(value, _LOCKS):
                yield name, value


def _is_held(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True
