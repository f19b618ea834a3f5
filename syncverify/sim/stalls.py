"""Why a run was ended early, in words: who waits for whom, in what, and where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """What a blocked rank waits for.

    Attributes:
        operation: The operation in words.
        missing_ranks: Whose arrival would let it go on.
        thing: Name of what it waits for, the same in every run and on every rank: whoever
            brings it about says so with `Scheduler.touch`.
    """

    operation: str
    missing_ranks: Callable[[], tuple[int, ...]]
    thing: str

    @property
    def what(self) -> str:
        """Say who is missing in what."""
        missing = ", ".join(f"rank {rank}" for rank in self.missing_ranks())
        return f"{missing or 'nobody'} in {self.operation}"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank stands when its run ends.

    Attributes:
        rank: Global rank.
        finished: Whether its program has ended.
        wait: What it waits or asks for, if it does.
        line: The subject's line that it stands on, where it is known.
    """

    rank: int
    finished: bool
    wait: Wait | None
    line: str = ""


@dataclass(frozen=True, slots=True)
class Stall:
    """Why the scheduler ended a run early.

    Attributes:
        kind: `deadlock` when no rank can move, `never_returns` when one kept its turn,
            `step_bound` when there was no end to turns.
        ranks: The ranks at fault, as far as one can tell.
        details: One line per rank, or the stack of the rank that kept its turn.
    """

    kind: str
    ranks: tuple[int, ...]
    details: tuple[str, ...]


def deadlock(positions: Sequence[Position]) -> Stall:
    """Describe a world in which no rank can move.

    Args:
        positions: One per rank; whoever has not finished waits.

    Returns:
        What each waits for, and the cycle of waits if there is one.
    """
    waits = {own.rank: own.wait for own in positions if own.wait is not None}
    missing = {rank for wait in waits.values() for rank in wait.missing_ranks()}
    lines = [
        f"rank {own.rank}: "
        + (f"waits for {own.wait.what}" if own.wait is not None else "has finished")
        for own in positions
    ]
    if cycle := _cycle(waits):
        lines.append("wait-for cycle: " + " -> ".join(f"rank {rank}" for rank in cycle))
    return Stall("deadlock", tuple(sorted(missing)), tuple(lines))


def endless(positions: Sequence[Position], blocked: frozenset[int]) -> Stall:
    """Describe a world in which ranks move, and get nowhere.

    Args:
        positions: One per rank.
        blocked: Ranks that could not move.

    Returns:
        Where each stands; at fault are those that move.
    """
    lines = []
    for own in positions:
        if own.finished:
            lines.append(f"rank {own.rank}: has finished")
        elif own.wait is None:
            lines.append(f"rank {own.rank}: goes on at {own.line}")
        elif own.rank in blocked:
            lines.append(f"rank {own.rank}: waits for {own.wait.what}")
        else:
            said = f"polls for {own.wait.what}; polls at {own.line}"
            lines.append(f"rank {own.rank}: {said}")
    alive = {own.rank for own in positions if not own.finished}
    return Stall("step_bound", tuple(sorted(alive - blocked or alive)), tuple(lines))


def _cycle(waits: dict[int, Wait]) -> list[int]:
    """Return ranks that wait for each other in turn, the first one again at the end.

    A rank that waits for one that has finished is in no cycle: that one explains it.
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
