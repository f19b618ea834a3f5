"""Faults: the reason, in words, why a run did not reach its end."""

import math
import re
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from syncverify.errors import InternalError, RunEndedError, SyncverifyError
from syncverify.plain_text import in_one_line, kind_of, message_of, noun_of, without_ids
from syncverify.playing.messages import JobOutcome, unpack_result
from syncverify.playing.program.subject_error import (
    SubjectRaisedError,
    raised_by_subject,
)
from syncverify.sim.apart.hub import Hub
from syncverify.sim.network.rendezvous import Mismatch
from syncverify.sim.turns.own_errors import own_error_behind
from syncverify.sim.turns.scheduler import RankThread
from syncverify.sim.turns.stalls import Stall, deadlock
from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.run import Detail, Fault, FaultKind, Misused
from syncverify.trace.source_lines import CodeLine, Origin
from syncverify.trace.stacks import outermost_frames

_OF_A_LIST: Final = re.compile(
    r"'list' object has no attribute|list indices must be|not list\b|unhashable type: 'list'"
)
# Two sizes that torch refused to use together, as its errors name them.
_SHAPE: Final = r"\[([\d, ]*)\]"
_PAIRS: Final = tuple(
    re.compile(each)
    for each in (
        rf"shape '{_SHAPE}' is invalid for input of size (\d+)",
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
        r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)",
        rf"output with shape {_SHAPE} doesn't match the broadcast shape {_SHAPE}",
    )
)
_SLICE: Final = re.compile(
    r"start \((\d+)\) \+ length \((\d+)\) exceeds dimension size \((\d+)\)"
)


def raised_fault(error: SubjectRaisedError, rank: int) -> Fault:
    """Return an exception on a global rank, with the subject's lines.

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
        sizes=_refused_sizes(message) if isinstance(original, RuntimeError) else (),
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


def _refused_sizes(message: str) -> tuple[int, ...]:
    """Return the two sizes that an error of torch names in its words, in elements.

    Of a slice they are its length and the elements that are left for it. Any other error has none.
    """
    if found := _SLICE.search(message):
        start, length, whole = map(int, found.groups())
        return length, whole - start
    pairs = (pattern.search(message) for pattern in _PAIRS)
    return next((tuple(map(_numel, each.groups())) for each in pairs if each), ())


def _numel(shape: str) -> int:
    return math.prod(int(each) for each in shape.split(",") if each.strip())


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

    It is a mismatch of two ranks in one collective, or the ranks that issued fewer collectives
    than a peer of the communicator; None if all match.
    """
    # The launches of each collective, in rank order.
    arrivals = defaultdict[CollectiveKey, list[tuple[int, CollectiveLaunch]]](list)
    for rank, issued in sorted(launches.items()):
        for launch in issued:
            arrivals[launch.key].append((rank, launch))
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


def turns_fault(
    mismatches: Iterable[Mismatch | None],
    raised: Iterable[Fault | None],
    stall: Stall | None,
) -> Fault | None:
    """Return the first cause for which ranks that take turns did not all reach their end.

    In this order: two ranks disagreed in a collective, a rank raised, no rank could go on.
    """
    mismatch = next(filter(None, mismatches), None)
    if mismatch is not None:
        return mismatch_fault(mismatch.ranks, mismatch.lines, mismatch.sources)
    fault = next(filter(None, raised), None)
    if fault is not None or stall is None:
        return fault
    return stall_fault(stall.kind, stall.ranks, stall.details, stall.named)


def threads_fault(
    threads: Sequence[RankThread], stall: Stall | None, mismatch: Mismatch | None = None
) -> Fault | None:
    """Return the reason why ranks that are threads did not all reach their end."""
    raised = (_raised(thread, has_stalled=stall is not None) for thread in threads)
    return turns_fault([mismatch], raised, stall)


def _raised(thread: RankThread, *, has_stalled: bool) -> Fault | None:
    """Return the fault of a rank on which the subject raised; raise errors of the harness."""
    match thread.error:
        case None:
            return None
        # Where nothing ended the run, the subject kept such an error and raised it again.
        case RunEndedError() if has_stalled:
            return None
        case RunEndedError() | SubjectRaisedError() as error:
            raised = raised_by_subject(error)
            return None if raised is None else raised_fault(raised, thread.rank)
        case SyncverifyError() as error:
            raise error
        case error:
            raise InternalError(f"rank {thread.rank}: {error!r}") from error


def hub_fault(hub: Hub, raised: Iterable[Fault | None]) -> Fault | None:
    """Return the reason why ranks that are processes, and take turns, did not all end."""
    mismatches = (own.ended.mismatch for own in hub.ranks if own.ended is not None)
    fault = turns_fault(mismatches, raised, hub.stall)
    lost = tuple(own.rank for own in hub.ranks if own.lost)
    if fault is not None or not lost:
        return fault
    positions = deadlock([own.position() for own in hub.ranks]).details
    lines = [*positions[: len(hub.ranks)]]
    for rank in lost:
        own = hub.ranks[rank]
        after = f", after {own.last_launch}" if own.last_launch else ""
        lines[rank] = f"rank {rank}: ended by {own.lost}{after}"
    return death_fault(lost, lines)


def death_fault(ranks: tuple[int, ...], lines: Iterable[Detail]) -> Fault:
    """Return the fault of ranks whose processes died."""
    words = f"the process of rank {ranks[0]} died"
    return Fault("process_died", ranks, words, tuple(lines))
