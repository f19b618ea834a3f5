"""Stalls: the reasons for which a run ends early, in words.

A stall names the waiting ranks, the operations that they wait in, and their lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from syncverify.trace.run import Detail
from syncverify.trace.source_lines import (
    CodeLine,
    NoLine,
    Origin,
    SourceLine,
    lines_among,
)


@dataclass(frozen=True, slots=True)
class Wait:
    """The operation that a rank waits in, or asks about.

    Attributes:
        operation: The operation in words.
        missing_ranks: Returns the global ranks that have to arrive before the rank goes on.
        line: Line of the subject that called it.
        resource: Name of the awaited resource, the same in every run and on every rank. The
            rank that completes the resource calls `Scheduler.note_access` with the name.
        is_of_stream: Whether a stream of the device waits, and a real host goes on.
    """

    operation: str
    missing_ranks: Callable[[], tuple[int, ...]]
    resource: str
    line: Origin = NoLine.UNKNOWN
    is_of_stream: bool = False

    @property
    def in_words(self) -> str:
        """Name the missing ranks and the operation."""
        missing = ", ".join(f"rank {rank}" for rank in self.missing_ranks())
        return f"{missing or 'nobody'} in {self.operation}"


# The wait of a host for a value after hosts have passed waits of streams: it never ends.
UNKNOWN_VALUES = Wait("a value of the device", tuple, "values", is_of_stream=True)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank stands when its run ends.

    Attributes:
        finished: Whether its program has ended.
        wait: The operation that the rank waits in or asks about; None if it runs.
        line: Line of the subject that the rank has reached, where it is known.
    """

    rank: int
    finished: bool
    wait: Wait | None
    line: CodeLine | NoLine = NoLine.UNKNOWN


@dataclass(frozen=True, slots=True)
class Stall:
    """The reason for which the scheduler ended a run early.

    Attributes:
        kind: `deadlock` if no rank can run, `never_returns` if a rank kept its turn,
            `step_bound` if ranks ran on without an end: up to the number of steps of a run, or
            without a record.
        ranks: Global ranks at fault, as far as the scheduler can tell.
        details: One line per rank, or the stack of the rank that kept its turn.
        named: Lines of the subject that the details name in words.
        is_certain: Whether real ranks cannot go on either, where a host goes on in a wait of
            a stream.
    """

    kind: Literal["deadlock", "never_returns", "step_bound"]
    ranks: tuple[int, ...]
    details: tuple[Detail, ...]
    named: tuple[SourceLine, ...] = ()
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
