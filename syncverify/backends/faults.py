"""Say in words why a run did not reach its end."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Mapping, Sequence

from syncverify.backends.messages import Answer, unpack_result
from syncverify.errors import InternalError, SyncverifyError
from syncverify.rank_program import SubjectRaisedError
from syncverify.run import Fault
from syncverify.sim.meetings import Mismatch
from syncverify.sim.scheduler import RankThread, RunEndedError
from syncverify.sim.stalls import Stall
from syncverify.sourcelines import outermost_frames
from syncverify.trace import CollectiveLaunch, Place


def raised_fault(error: SubjectRaisedError, rank: int) -> Fault:
    """Describe an exception of the subject.

    Args:
        error: What the rank program raised.
        rank: Global rank that it was raised on.

    Returns:
        The fault, with the subject's lines of the traceback.
    """
    original = error.original
    kind = type(original).__name__
    lines = outermost_frames(traceback.extract_tb(original.__traceback__))
    return Fault(
        "raised",
        (rank,),
        f"rank {rank} raised {kind} in {error.moment}: {original}",
        tuple(lines),
        identity=kind,
        is_clear=_is_clear(original),
        step=error.moment.step,
    )


def _is_clear(error: BaseException) -> bool:
    """Tell whether an exception was meant for the caller, and says what is wrong."""
    slips = (LookupError, AttributeError, NameError, ArithmeticError)
    is_slip = isinstance(error, slips) and type(error).__module__ == "builtins"
    return bool(str(error)) and not is_slip and not isinstance(error, SystemExit)


def stall_fault(kind: str, ranks: tuple[int, ...], details: tuple[str, ...]) -> Fault:
    """Describe ranks that cannot go on.

    Args:
        kind: `deadlock`, `never_returns` or `step_bound`.
        ranks: The ranks at fault.
        details: What each rank waits for, or where one stands.

    Returns:
        The fault.
    """
    named = ", ".join(f"rank {rank}" for rank in ranks)
    if kind == "deadlock":
        return Fault(
            "deadlock", ranks, f"no rank can go on: {named} never arrives", details
        )
    if kind == "step_bound":
        said = f"{named} kept going without an end, up to the bound of a run"
        return Fault("step_bound", ranks, said, details)
    return Fault(
        "never_returns", ranks, f"{named} made no progress and was ended", details
    )


Launches = Mapping[int, Sequence[CollectiveLaunch]]


def answers_fault(answers: Mapping[int, Answer]) -> Fault | None:
    """Choose the fault that led to the others.

    Args:
        answers: By rank, of the ranks that ended.

    Returns:
        What a rank did by itself, or else why the ranks whose collectives failed could
        not meet; None if no rank reports a fault.
    """
    raised = [a for _, a in sorted(answers.items()) if a.fault is not None]
    for answer in raised:
        if not answer.is_aftershock:
            return answer.fault
    if not raised:
        return None
    finished = {rank for rank, answer in answers.items() if answer.fault is None}
    return unmatched_fault(launches_of(answers), finished) or raised[0].fault


def launches_of(answers: Mapping[int, Answer]) -> Launches:
    """List the collectives of ranks that ended."""
    runs = {rank: unpack_result(answer.result) for rank, answer in answers.items()}
    return {
        rank: [event for event in run.events if isinstance(event, CollectiveLaunch)]
        for rank, run in runs.items()
    }


def unmatched_fault(launches: Launches, finished: Collection[int]) -> Fault | None:
    """Find out from the traces why real collectives did not come to an end.

    Args:
        launches: The collectives that each rank issued, in order.
        finished: Ranks that wait for nothing.

    Returns:
        Ranks that met and disagree, or ranks that issued fewer collectives than a peer
        of the communicator; None if all match.
    """
    meetings: dict[Place, list[tuple[int, CollectiveLaunch]]] = {}
    for rank, issued in sorted(launches.items()):
        for launch in issued:
            meetings.setdefault(launch.place, []).append((rank, launch))
    for (first, launch), *others in meetings.values():
        for rank, other in others:
            if other.terms != launch.terms:
                said = (f"rank {first}: {launch}", f"rank {rank}: {other}")
                return _mismatch_fault((first, rank), said)
    behind = {
        rank
        for (_, group, _), arrived in meetings.items()
        for rank in group
        if rank in launches and rank not in {there for there, _ in arrived}
    }
    if not behind:
        return None
    lines = positions(launches, finished)
    return stall_fault("deadlock", tuple(sorted(behind)), lines)


def awaits_peers(rank: int, launches: Launches) -> bool:
    """Tell whether a rank issued a collective that not all of its peers have issued.

    Args:
        rank: The rank.
        launches: The collectives that each rank issued, in order.

    Returns:
        Whether it has somebody to wait for.
    """
    issued = {
        peer: {launch.place for launch in theirs} for peer, theirs in launches.items()
    }
    return any(
        place not in issued.get(peer, ()) for place in issued[rank] for peer in place[1]
    )


def positions(launches: Launches, finished: Collection[int]) -> tuple[str, ...]:
    """Say where each rank stands, one line per rank."""
    return tuple(
        f"rank {rank}: has finished"
        if rank in finished
        else f"rank {rank}: stands after {issued[-1] if issued else 'no collective'}"
        for rank, issued in sorted(launches.items())
    )


def _mismatch_fault(ranks: tuple[int, int], lines: tuple[str, ...]) -> Fault:
    summary = f"ranks {list(ranks)} met in one collective and disagree"
    return Fault("collective_mismatch", ranks, summary, lines)


def threads_fault(
    threads: Sequence[RankThread], stall: Stall | None, mismatch: Mismatch | None = None
) -> Fault | None:
    """Describe why rank threads did not all reach their end.

    Args:
        threads: How each rank ended.
        stall: Why the scheduler ended the run early, if it did.
        mismatch: Ranks that disagreed in a collective, if they did.

    Returns:
        The fault; None if all reached their end.

    Raises:
        SyncverifyError: The harness refused something.
        InternalError: A rank failed outside of the subject.
    """
    if mismatch is not None:
        return _mismatch_fault(mismatch.ranks, mismatch.lines)
    for thread in threads:
        match thread.error:
            case None | RunEndedError():
                continue
            case SubjectRaisedError() as error:
                return raised_fault(error, thread.rank)
            case SyncverifyError() as error:
                raise error
            case error:
                raise InternalError(f"rank {thread.rank}: {error!r}") from error
    return (
        None if stall is None else stall_fault(stall.kind, stall.ranks, stall.details)
    )
