"""Faults: the reason, in words, why a run did not reach its end."""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from syncverify.errors import InternalError, RunEndedError, SyncverifyError
from syncverify.plain_text import (
    in_one_line,
    kind_of,
    message_of,
    noun_of,
    without_ids,
)
from syncverify.playing.messages import JobOutcome
from syncverify.playing.packed_outcomes import unpack_result
from syncverify.playing.program.subject_error import SubjectRaisedError
from syncverify.playing.refused_sizes import refused_sizes
from syncverify.sim.network.rendezvous import Mismatch
from syncverify.sim.turns.own_errors import own_error_behind
from syncverify.sim.turns.scheduler import RankThread
from syncverify.sim.turns.stalls import Stall
from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.run import Detail, Fault, FaultKind, Misused
from syncverify.trace.source_lines import CodeLine, Origin
from syncverify.trace.stacks import outermost_frames

_OF_A_LIST: Final = re.compile(
    r"'list' object has no attribute|list indices must be|not list\b|unhashable type: 'list'"
)


def raised_fault(error: SubjectRaisedError, rank: int) -> Fault:
    """Return an exception of the subject on a global rank, with the subject's lines.

    Raises:
        InternalError: The simulated machine is at fault; see Note [An error of the machine].
    """
    original = error.original
    if (own := own_error_behind(original)) is not None:
        raise InternalError(f"rank {rank}: {own}") from original
    kind = kind_of(original)
    message = in_one_line(without_ids(message_of(original)))
    within = f" in {error.moment}" if error.moment.phase else ""
    raised = f"{kind}{within}: {message}" if message else f"{kind}{within}"
    lines = outermost_frames(traceback.extract_tb(original.__traceback__))
    return Fault(
        "raised",
        (rank,),
        f"rank {rank} raised {raised}",
        tuple(lines),
        identity=kind,
        is_clear=_is_clear(original),
        step=error.moment.step,
        phase=error.moment.phase,
        error=raised,
        is_of_hook_left=error.moment.phase == "after_unbind" and bool(lines),
        misused=_misused(error, raised, lines),
        sizes=refused_sizes(message) if isinstance(original, RuntimeError) else (),
    )


def _misused(
    error: SubjectRaisedError, raised: str, lines: Collection[CodeLine]
) -> Misused:
    """Return the value that Python refused to use.

    Python says its type in words alone. The argument of a tensor hook may be None as well, for
    an undefined gradient, so one of the lines has to read `.grad`.
    """
    if error.in_tensor_hook and "'NoneType'" in raised:
        return "unset gradient" if any(".grad" in each.code for each in lines) else ""
    return "list" if _OF_A_LIST.search(raised) else ""


def _is_clear(error: BaseException) -> bool:
    """Tell whether an exception explains a mistake to the caller, and is no slip of code."""
    slips = (LookupError, AttributeError, NameError, ArithmeticError)
    is_slip = isinstance(error, slips) and type(error).__module__ == "builtins"
    message = message_of(error)
    # torch's failed assertions about itself ask the caller to report a bug.
    is_crash = not message or "INTERNAL ASSERT FAILED" in message
    return not is_crash and not is_slip and isinstance(error, Exception)


def stall_fault(
    kind: FaultKind,
    ranks: tuple[int, ...],
    details: tuple[Detail, ...],
    named: tuple[Origin, ...] = (),
) -> Fault:
    """Return the fault of ranks that cannot go on, with a line about each of them.

    The kind is `deadlock`, `never_returns` or `step_bound`.
    """
    who = f"{noun_of(len(ranks), 'rank')} {', '.join(map(str, ranks))}"
    arrives, was = ("arrives", "was") if len(ranks) == 1 else ("arrive", "were")
    summaries = {
        "deadlock": f"no rank can go on: {who} never {arrives}",
        "never_returns": f"{who} made no progress and {was} ended",
        "step_bound": f"{who} kept going without an end, up to the bound of a run",
    }
    return Fault(kind, ranks, summaries[kind], details, named)


LaunchesByRank = Mapping[int, Sequence[CollectiveLaunch]]


def outcomes_fault(outcomes: Mapping[int, JobOutcome]) -> Fault | None:
    """Return the fault among ended ranks that explains the others; None if no rank has one.

    The first of these that there is:

    1. a fault that no peer caused, of the least rank;
    2. the reason why collectives of different ranks do not match;
    3. the fault of the least rank.
    """
    failed = [each for _, each in sorted(outcomes.items()) if each.fault is not None]
    for outcome in failed:
        if not outcome.is_aftershock:
            return outcome.fault
    if not failed:
        return None
    finished = {rank for rank, outcome in outcomes.items() if outcome.fault is None}
    return unmatched_fault(launches_of(outcomes), finished) or failed[0].fault


def launches_of(outcomes: Mapping[int, JobOutcome]) -> LaunchesByRank:
    """Return the collectives that each ended rank issued, in order, by rank."""
    runs = {rank: unpack_result(outcome.result) for rank, outcome in outcomes.items()}
    return {
        rank: [event for event in run.trace if isinstance(event, CollectiveLaunch)]
        for rank, run in runs.items()
    }


def unmatched_fault(
    launches: LaunchesByRank, finished: Collection[int]
) -> Fault | None:
    """Return the fault of collectives that do not match, and so never end.

    Returns:
        A mismatch of two ranks in one collective, or the ranks that issued fewer
        collectives than a peer of the communicator; None if all match.
    """
    # The launches of each collective, in rank order.
    arrivals: dict[CollectiveKey, list[tuple[int, CollectiveLaunch]]] = {}
    for rank, issued in sorted(launches.items()):
        for launch in issued:
            arrivals.setdefault(launch.key, []).append((rank, launch))
    for (first, launch), *others in arrivals.values():
        for rank, other in others:
            if other.matched_arguments != launch.matched_arguments:
                descriptions = (f"rank {first}: {launch}", f"rank {rank}: {other}")
                sources = (launch.source, other.source)
                return mismatch_fault((first, rank), descriptions, sources)
    behind = {
        rank
        for key, arrived in arrivals.items()
        for rank in key.ranks
        if rank in launches and rank not in dict(arrived)
    }
    if not behind:
        return None
    lines = positions(launches, finished)
    return stall_fault("deadlock", tuple(sorted(behind)), lines, stands(launches))


def awaits_peers(rank: int, launches: LaunchesByRank) -> bool:
    """Tell whether a rank issued a collective that not all of its peers have issued."""
    issued = {
        peer: {launch.key for launch in theirs} for peer, theirs in launches.items()
    }
    return any(
        key not in issued.get(peer, ()) for key in issued[rank] for peer in key.ranks
    )


def positions(launches: LaunchesByRank, finished: Collection[int]) -> tuple[str, ...]:
    """Return a line for each rank: its last collective, or that it has finished."""
    return tuple(
        f"rank {rank}: has finished"
        if rank in finished
        else f"rank {rank}: stands after {issued[-1] if issued else 'no collective'}"
        for rank, issued in sorted(launches.items())
    )


def stands(launches: LaunchesByRank) -> tuple[Origin, ...]:
    """Return the line of the last collective of each rank that issued one."""
    return tuple(own[-1].source for _, own in sorted(launches.items()) if own)


def mismatch_fault(
    ranks: tuple[int, int], lines: tuple[str, ...], named: tuple[Origin, ...]
) -> Fault:
    """Return the fault of two global ranks that disagree, with the call of each in words."""
    summary = f"ranks {list(ranks)} met in one collective and disagree"
    return Fault("collective_mismatch", ranks, summary, lines, named)


def threads_fault(
    threads: Sequence[RankThread], stall: Stall | None, mismatch: Mismatch | None = None
) -> Fault | None:
    """Return the reason why rank threads did not all reach their end.

    Raises:
        SyncverifyError: The harness refused a call of a rank.
        InternalError: A rank failed outside of the subject.
    """
    if mismatch is not None:
        return mismatch_fault(mismatch.ranks, mismatch.lines, mismatch.sources)
    for thread in threads:
        raised = _raised(thread, has_stalled=stall is not None)
        if raised is not None:
            return raised_fault(raised, thread.rank)
    if stall is None:
        return None
    return stall_fault(stall.kind, stall.ranks, stall.details, stall.named)


def _raised(thread: RankThread, *, has_stalled: bool) -> SubjectRaisedError | None:
    """Return the error of the subject on a rank; raise those of the harness."""
    match thread.error:
        # Nothing ended the run: the subject keeps such an error, and raises it again.
        case RunEndedError(__cause__=SubjectRaisedError() as error) if not has_stalled:
            return error
        case None | RunEndedError():
            return None
        case SubjectRaisedError() as error:
            return error
        case SyncverifyError() as error:
            raise error
        case error:
            raise InternalError(f"rank {thread.rank}: {error!r}") from error
