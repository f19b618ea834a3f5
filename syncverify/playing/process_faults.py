"""Faults of rank processes that died or make no progress, and doubts about their cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncverify.playing.faults import (
    awaits_peers,
    death_fault,
    launches_of,
    outcomes_fault,
    positions,
    stall_fault,
    stands,
    unmatched_fault,
)
from syncverify.playing.gathering import Gathering
from syncverify.playing.worker_gathering import WorkerGathering
from syncverify.trace.run import Detail, Fault
from syncverify.trace.stacks import frames_in_dump

# Signals that come from outside as well: from a user, a supervisor, the kernel out of memory.
_FROM_OUTSIDE = {"signal 9", "signal 15"}


def processes_fault(gathering: Gathering[Any]) -> Fault | None:
    """Return the reason why not all ranks of a scenario reached their end."""
    if gathering.died:
        died = sorted(gathering.died.items())
        lines = [f"rank {rank}: ended by {how}" for rank, how in died]
        return death_fault(tuple(rank for rank, _ in died), lines)
    fault = outcomes_fault(gathering.outcomes)
    if fault is None and gathering.pending():
        return _stall(gathering)
    return fault


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason why a loss may not be the scenario's fault.

    Attributes:
        num_before: How often the same loss has to come before, in other processes, until it
            is the scenario's fault.
    """

    words: str
    num_before: int = 1


def doubt_about(fault: Fault | None, gathering: WorkerGathering) -> Doubt | None:
    """Say why a process that was lost, or a connection, may not be the scenario's fault.

    Returns:
        The doubt. None if there is no loss, or if the loss is the scenario's: the process was
        new, it had taken the job, and nothing outside of it ends or stops it like that.
    """
    if fault is not None and _is_broken_connection(fault, gathering):
        # Jobs of gloo that end beside this one may break two connections in a row.
        words = "a connection of gloo broke, though no process was lost"
        return Doubt(words, num_before=2)
    if fault is not None and _names_every_rank(fault, gathering):
        return Doubt("no rank went on")
    if fault is not None and _is_in_no_line_of_the_subject(fault):
        return Doubt(f"{fault.summary}, in no line of the subject")
    lost = {*gathering.died, *gathering.silent()}
    ranks = fault.ranks if fault is not None else ()
    for rank in ranks:
        worker = gathering.processes[rank]
        may_be_ended = gathering.died.get(rank) in _FROM_OUTSIDE
        is_proven = (
            worker.num_jobs == 1
            and rank in gathering.started
            and not may_be_ended
            and not worker.is_stopped()
        )
        if rank in lost and not is_proven:
            words = f"the process of rank {rank} {_end(gathering, rank)}"
            # A random killer hits two processes in a row now and then.
            return Doubt(words, num_before=2 if may_be_ended else 1)
    return None


def _is_broken_connection(fault: Fault, gathering: WorkerGathering) -> bool:
    """Tell whether a rank raised what a lost peer causes, and no peer was lost."""
    # Beside other jobs of gloo, a stranger may connect to a port that was used before.
    outcomes = [gathering.outcomes.get(rank) for rank in fault.ranks]
    has_raised = any(each is not None and each.is_aftershock for each in outcomes)
    return fault.kind == "raised" and has_raised


def _names_every_rank(fault: Fault, gathering: WorkerGathering) -> bool:
    """Tell whether all ranks wait and none is at fault, as where bytes of gloo are lost."""
    return fault.kind == "deadlock" and len(fault.ranks) == len(gathering.processes)


def _is_in_no_line_of_the_subject(fault: Fault) -> bool:
    """Tell whether a rank that answers was ended in the middle of torch or of the harness."""
    # After a template was killed, a new process imports modules of torch on a busy machine.
    return fault.kind == "never_returns" and not fault.details


def _end(gathering: Gathering[Any], rank: int) -> str:
    """Say how a process ended, or why it does not answer."""
    if rank in gathering.died:
        return f"ended by {gathering.died[rank]}"
    words: str = gathering.processes[rank].why_silent()
    return words


def _stall(gathering: Gathering[Any]) -> Fault:
    """Return the fault of a rank that loops or is silent, not of the ranks that wait for it."""
    finished = set(gathering.outcomes)
    stalled = gathering.statuses
    issued = {rank: status.launches for rank, status in stalled.items()}
    launches = {**issued, **launches_of(gathering.outcomes)}
    # The innermost Python line belongs to the subject also while it calls C++, as in
    # `work.wait()`. A rank there has issued a collective that a peer has not.
    own_loop = [
        rank
        for rank, status in stalled.items()
        if not (status.in_torch or awaits_peers(rank, launches))
    ]
    silent = gathering.silent()
    if silent:
        # All that is known of their peers is that some wait.
        lines = list[Detail]()
        for rank in silent:
            lines.append(f"rank {rank}: {_end(gathering, rank)}")
            lines += frames_in_dump(gathering.processes[rank].stacks())
        return stall_fault(
            "never_returns",
            tuple(sorted([*silent, *own_loop])),
            (*lines, *positions(launches, finished)),
            stands(launches),
        )
    if own_loop:
        rank = own_loop[0]
        return stall_fault("never_returns", (rank,), stalled[rank].lines)
    all_ranks = tuple(sorted(launches))
    return unmatched_fault(launches, finished) or stall_fault(
        "deadlock", all_ranks, positions(launches, finished), stands(launches)
    )
