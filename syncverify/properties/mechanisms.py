"""The call behind a wrong gradient, where the trace shows it.

A value tells what was added to what. The same value follows from several mistakes: what
lacks the other ranks was never reduced, or reduced and read elsewhere. Where the trace of
the run leaves one of them only, it is the cause, with the line that made it.

Note [What a trace can show]
    A launch names the parameters whose `.grad` lies in what is sent. Gradients that were
    copied elsewhere first have no name there; some are known by their values (Note [Names
    by value] in `sent.py`). A launch of which neither tells may be about anybody, and
    nothing is concluded from its lack of names.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator

import torch

from syncverify.decoding import Cause
from syncverify.memory import MemoryRegion
from syncverify.owed import Owed
from syncverify.properties.evidence import Evidence, memory, until, where
from syncverify.properties.lost_views import moved, view_lost
from syncverify.properties.sent import elements, senders, sends
from syncverify.run import Observation, RankRun
from syncverify.slots import find_slots
from syncverify.trace import (
    AUTOGRAD,
    Access,
    CollectiveLaunch,
    Event,
    Moment,
)

_COUNTED_OFTEN = frozenset({"scaled", "contribution_doubled", "miscounted"})
_LACKS_BACKWARDS = frozenset(
    {
        "micro_batch_missing",
        "miscounted",
        "never_written",
        "partly_wrong",
        "rank_contribution_missing",
        "unexplained",
    }
)


def mechanism(
    owed: Owed, observation: Observation, cause: Cause, rank_run: RankRun
) -> Cause:
    """Name the call that made a gradient wrong.

    Args:
        owed: What the gradient should be.
        observation: Shows what it is.
        cause: What its value tells.
        rank_run: What its rank did; what comes later explains nothing.

    Returns:
        What the trace tells, or `cause` if it tells nothing more.
    """
    observed = observation.gradients[owed.spec.name]
    if observed is None:
        return cause
    events = until(observation, rank_run.events)
    earlier = itertools.takewhile(
        lambda other: other is not observation, rank_run.observations
    )
    evidence = Evidence(owed, observed, cause.kind, events, [*earlier])
    proposals = (
        view_lost,
        moved,
        _not_reduced,
        _reduced_twice,
        _summed_again,
        _reduced_early,
        _erased,
        _gone,
    )
    told = (proposal(evidence) for proposal in proposals)
    return next((cause for cause in told if cause is not None), cause)


def _not_reduced(evidence: Evidence) -> Cause | None:
    owed, launches = evidence.owed, evidence.launches
    if not evidence.is_unsent:
        return None
    names = [senders(owed.reference, owed.rank, launch) for launch in launches]
    if any(sent is None or owed.spec.name in sent for sent in names):
        return None
    named = sorted({name for sent in names if sent for name in sent})
    told = f"they have {', '.join(named) or 'zeros'}" if launches else "there is none"
    text = (
        f"it is rank {evidence.owed.rank}'s own gradient, and no collective of the step "
        f"has it: {told}"
    )
    return Cause("not_reduced", text)


def _reduced_twice(evidence: Evidence) -> Cause | None:
    # A mean of means is right, and a sum of sums too large by the number of its ranks.
    if evidence.kind not in _COUNTED_OFTEN:
        return None
    name, value = evidence.owed.spec.name, evidence.owed.value()
    sums = [
        e for e in evidence.reductions if e.reduce_op == "SUM" and _is_whole(name, e)
    ]
    again = Counter(event.ranks for event in sums)
    factor = math.prod(len(ranks) ** (count - 1) for ranks, count in again.items())
    if not evidence.equals(value * factor):
        return None
    pairs = itertools.combinations(sums, 2)
    first, second = next(pair for pair in pairs if pair[0].ranks == pair[1].ranks)
    text = (
        f"what ranks {list(first.ranks)} had summed they summed again: it was reduced "
        f"{where(first)} and {where(second)}"
    )
    return Cause("reduced_twice", text)


def _summed_again(evidence: Evidence) -> Cause | None:
    """Find a launch that sends what its ranks have summed before; see `_reduced_twice`."""
    owed = evidence.owed
    if evidence.kind not in _COUNTED_OFTEN or len(owed.ranks) == 1:
        return None
    summed, factor, again = owed.total(owed.ranks), 1, list[CollectiveLaunch]()
    for launch in evidence.launches:
        is_among = launch.reduce_op == "SUM" and {*launch.ranks} <= {*owed.ranks}
        gradient = owed.spec.name, summed * factor
        if is_among and sends(owed.reference, owed.rank, launch, gradient):
            again.append(launch)
            factor *= len(launch.ranks)
    if not again or not evidence.equals(owed.value() * factor):
        return None
    text = (
        f"it was the sum over ranks {list(owed.ranks)} already when it was summed again "
        f"{where(again[0])}"
    )
    return Cause("reduced_twice", text)


def _is_whole(name: str, launch: CollectiveLaunch) -> bool:
    num_bytes = sum(region.end_byte - region.start_byte for region in launch.regions)
    return any(
        slot.parameter == name and slot.offset_bytes >= 0 and slot.end_byte <= num_bytes
        for slot in launch.slots
    )


def _reduced_early(evidence: Evidence) -> Cause | None:
    """Find what was accumulated after the last reduction, or agreed to be."""
    if evidence.kind not in _LACKS_BACKWARDS or not evidence.reductions:
        return None
    launch, count = evidence.reductions[-1], evidence.owed.count
    micro_batch = launch.moment.micro_batch
    if micro_batch is not None and micro_batch < count - 1:
        text = f"not again, before the last of {count} micro-batches"
    else:
        after = itertools.dropwhile(lambda event: event is not launch, evidence.events)
        added = next(_accumulations(evidence.owed, launch, after), None)
        if added is None:
            return None
        text = f"accumulated again after that ({added.moment})"
    return Cause("reduced_early", f"it was reduced {where(launch)}, and {text}")


def _erased(evidence: Evidence) -> Cause | None:
    if evidence.kind != "never_written" or not evidence.reductions:
        return None
    launch = evidence.reductions[0]
    before = itertools.takewhile(lambda event: event is not launch, evidence.events)
    added = next(_accumulations(evidence.owed, launch, before), None)
    if added is None:
        return None
    text = (
        f"it is all zeros, although autograd added to it ({added.moment}) before it was "
        f"reduced {where(launch)}: it was cleared, or multiplied by 0"
    )
    return Cause("erased", text)


def _gone(evidence: Evidence) -> Cause | None:
    """Find a gradient in the very memory that is all zeros in the end."""
    if evidence.kind != "never_written" or not evidence.lay:
        return None
    place = evidence.lay[-1][1]
    if place is None or place.repeats:  # with gaps, in which others may lie
        return None
    when = next(
        itertools.chain(_sent_from(place, evidence), _seen_at(place, evidence)), ""
    )
    text = (
        f"it is all zeros, although rank {evidence.owed.rank}'s own gradient was in this "
        f"very memory {when}: it was cleared, or multiplied by 0"
    )
    return Cause("erased", text) if when else None


def _sent_from(place: MemoryRegion, evidence: Evidence) -> Iterator[str]:
    owed = evidence.owed
    own = owed.part(owed.rank).reshape(-1)
    for launch in evidence.launches:
        sent = elements(launch)
        for slot in find_slots({owed.spec.name: place}, launch.regions):
            width = slot.num_bytes // len(own)
            start = slot.offset_bytes // width
            if sent is None or start < 0:  # it starts in the middle of the gradient
                continue
            if own.any() and torch.equal(sent[start : start + len(own)], own):
                yield f"when it was sent {where(launch)}"


def _seen_at(place: MemoryRegion, evidence: Evidence) -> Iterator[str]:
    owed, lay = evidence.owed, dict(evidence.lay)
    for seen in evidence.earlier:
        at = Moment("backward", owed.step, seen.micro_batch)
        gradient = seen.gradients[owed.spec.name]
        if seen.step == owed.step and lay.get(at) == place and gradient is not None:
            count = (seen.micro_batch or 0) + 1
            own = owed.part(owed.rank, range(count))
            if own.any() and torch.equal(gradient.double(), own):
                yield f"after {at}"


def _accumulations(
    owed: Owed, launch: CollectiveLaunch, events: Iterable[Event]
) -> Iterator[Access]:
    """Yield where autograd itself adds to the part of a launch that is owed."""
    slots = list(memory(owed.spec.name, launch))
    for event in events:
        if (
            isinstance(event, Access)
            and event.source == AUTOGRAD
            and (event.moment.step, event.moment.phase) == (owed.step, "backward")
            and any(own.overlaps(slot) for own in event.writes for slot in slots)
        ):
            yield event
