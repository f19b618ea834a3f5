"""Say in words why a run did not reach its end."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from syncverify.errors import InternalError, SyncverifyError
from syncverify.rank_program import SubjectRaisedError
from syncverify.run import Fault
from syncverify.sim.process_group import Mismatch
from syncverify.sim.scheduler import RankThread, RunEndedError, Stall
from syncverify.sourcelines import outermost_frames


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
    )


def stall_fault(kind: str, ranks: tuple[int, ...], details: tuple[str, ...]) -> Fault:
    """Describe ranks that cannot go on.

    Args:
        kind: `deadlock` or `never_returns`.
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
    return Fault(
        "never_returns", ranks, f"{named} made no progress and was ended", details
    )


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
        summary = f"ranks {list(mismatch.ranks)} met in one collective and disagree"
        return Fault("collective_mismatch", mismatch.ranks, summary, mismatch.lines)
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
