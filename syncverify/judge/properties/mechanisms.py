"""The call behind a wrong gradient, where the trace shows it.

A value tells which contributions were added. The same value follows from several mistakes:
a gradient without the other ranks was never reduced, or was reduced and then read from
other memory. Where the trace of the run leaves only one mistake, that one is the cause, with
the line that made it.

Note [What a trace can show]
    A launch names the parameters whose `.grad` lies in the memory that is sent. Gradients
    that were copied elsewhere first have no name there; some are recognized by their values
    (Note [Names by value] in `sent.py`). Any other launch may send any gradient, so nothing
    is concluded from its lack of names.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch

from syncverify.judge.cause import Cause
from syncverify.judge.decoding import as_float
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.bucket_orders import unpacked_otherwise
from syncverify.judge.properties.gradient_facts import (
    GradientFacts,
    memory,
    until,
    where,
)
from syncverify.judge.properties.lost_views import moved, view_lost
from syncverify.judge.properties.sent import elements, senders, sends
from syncverify.judge.properties.shared_buffers import refilled
from syncverify.judge.properties.unsent import (
    hooked_early,
    not_reduced,
    not_reset,
    zeros_of_nobody,
)
from syncverify.judge.traced import launches_of
from syncverify.scenario.feature_row import base_word
from syncverify.scenario.layout import axis_name, ranks_along
from syncverify.scenario.specs import PARTIAL, REPLICATE
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    Moment,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Observation, RankRun
from syncverify.trace.slots import find_slots
from syncverify.trace.source_lines import NoLine

_COUNTED_OFTEN = frozenset({"scaled", "contribution_doubled", "miscounted"})
_LACKS_MICRO_BATCH = frozenset({"micro_batch_missing", "never_written"})
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
    expected: ExpectedGradient,
    observation: Observation,
    cause: Cause,
    rank_run: RankRun,
) -> Cause:
    """Return the cause that the trace tells, or `cause` if it tells nothing more."""
    observed = observation.gradients[expected.spec.name]
    if observed is None:
        return cause
    trace = until(observation, rank_run.trace)
    earlier = itertools.takewhile(
        lambda other: other is not observation, rank_run.observations
    )
    gradients = observation.gradients
    facts = GradientFacts(expected, observed, cause.kind, trace, [*earlier], gradients)
    proposals = (
        _failure_hidden,
        view_lost,
        moved,
        _shared,
        _in_tensor_hook,
        refilled,
        unpacked_otherwise,
        _not_awaited,
        _result_dropped,
        not_reset,
        hooked_early,
        not_reduced,
        _reduced_twice,
        _summed_again,
        _reduced_early,
        _erased,
        zeros_of_nobody,
        _gone,
    )
    causes = (proposal(facts) for proposal in proposals)
    return next((cause for cause in causes if cause is not None), cause)


def _failure_hidden(facts: GradientFacts) -> Cause | None:
    """Find a failed collective that had to bring the others' parts."""
    expected = facts.expected
    events = expected.reference.scenario.events[: expected.step + 1]
    may_fail = "failing_collectives" in map(base_word, events)
    if not may_fail or not facts.launches:
        return None
    launch = (facts.reductions or facts.launches)[0]
    text = (
        f"{launch.operation} {where(launch)} failed, and the error of its wait never reached "
        "the training program"
    )
    return Cause("failure_hidden", text, lines=(launch.source,))


def _shared(facts: GradientFacts) -> Cause | None:
    """Find another gradient that lies in the same bytes."""
    name, returns = facts.expected.spec.name, facts.returns
    own = returns[-1].gradients.get(name) if returns else None
    if own is None or own.repeats or facts.observed.numel() == 0:
        return None
    for other, region in returns[-1].gradients.items():
        if other != name and not region.repeats and own.overlaps(region):
            text = (
                f"its memory is also that of the gradient of {other!r}: what is added to "
                "one of them is in both"
            )
            return Cause("memory_shared", text)
    return None


def _in_tensor_hook(facts: GradientFacts) -> Cause | None:
    """Find a reduction of the gradient before the accumulation that its hook precedes."""
    expected = facts.expected
    if facts.kind not in {*_LACKS_BACKWARDS, "reduced_early"}:
        return None
    for launch in launches_of(facts.trace):
        if not launch.in_tensor_hook or launch.moment.step != expected.step:
            continue
        names = senders(expected.reference, expected.rank, launch) or ()
        is_unknown = not names and facts.kind in _LACKS_MICRO_BATCH
        if expected.spec.name in names or is_unknown:
            text = (
                f"it was reduced {where(launch)}, inside of a hook that runs before "
                "autograd adds the gradient of the micro-batch to `.grad`"
            )
            return Cause("hook_too_early", text, lines=(launch.source,))
    return None


def _not_awaited(facts: GradientFacts) -> Cause | None:
    """Find a reduction of the gradient for which nothing waited."""
    expected = facts.expected
    if not facts.is_own:
        return None
    waited = {
        record.key for record in facts.trace if isinstance(record, CollectiveWait)
    }
    for launch in facts.launches:
        names = senders(expected.reference, expected.rank, launch) or ()
        # Only a recorder that knows streams records waits.
        is_async = launch.communication_stream != launch.stream
        is_open = is_async and launch.reduces and launch.key not in waited
        if is_open and expected.spec.name in names:
            text = (
                f"it is rank {expected.rank}'s own gradient: it was reduced "
                f"{where(launch)}, and nothing waited for the result"
            )
            return Cause(facts.kind, text, lines=(launch.source,))
    return None


def _result_dropped(facts: GradientFacts) -> Cause | None:
    """Find a reduction of the gradient that does not write to the memory of `.grad`."""
    expected = facts.expected
    if not facts.is_own:
        return None
    places = [place for _, place in facts.region_after_each_call if place]
    if not places:
        return None
    for launch in facts.launches:
        names = senders(expected.reference, expected.rank, launch) or ()
        # Real processes do not tell where results go, but an all-reduce works in place.
        in_place = launch.regions if launch.operation == "all_reduce" else ()
        written = launch.written or in_place
        is_there = any(out.overlaps(at) for out in written for at in places[-1:])
        is_named = written and expected.spec.name in names
        if launch.reduces and is_named and not is_there:
            text = (
                f"it is rank {expected.rank}'s own gradient: it was reduced "
                f"{where(launch)}, and the result never came into `.grad`"
            )
            return Cause("result_dropped", text, lines=(launch.source,))
    return None


def _reduced_twice(facts: GradientFacts) -> Cause | None:
    # A second mean changes nothing; a second sum multiplies by the number of its ranks.
    if facts.kind not in _COUNTED_OFTEN:
        return None
    name, value = facts.expected.spec.name, facts.expected.value()
    sums = [e for e in facts.reductions if e.reduce_op == "SUM" and _is_whole(name, e)]
    again = Counter(record.ranks for record in sums)
    factor = math.prod(len(ranks) ** (count - 1) for ranks, count in again.items())
    if not facts.equals(value * as_float(factor)):
        return None
    pairs = itertools.combinations(sums, 2)
    first, second = next(pair for pair in pairs if pair[0].ranks == pair[1].ranks)
    text = (
        f"ranks {list(first.ranks)} summed their sum again: it was reduced "
        f"{where(first)} and {where(second)}"
    )
    return _summed_twice(text, facts, [first, second])


def _summed_again(facts: GradientFacts) -> Cause | None:
    """Find a launch that sends a sum over its ranks; see `_reduced_twice`."""
    expected = facts.expected
    if facts.kind not in _COUNTED_OFTEN or len(expected.ranks) == 1:
        return None
    summed, factor, again = expected.total(expected.ranks), 1, list[CollectiveLaunch]()
    for launch in facts.launches:
        is_among = launch.reduce_op == "SUM" and {*launch.ranks} <= {*expected.ranks}
        gradient = expected.spec.name, summed * as_float(factor)
        if is_among and sends(expected.reference, expected.rank, launch, gradient):
            again.append(launch)
            factor *= len(launch.ranks)
    if not again or not facts.equals(expected.value() * as_float(factor)):
        return None
    text = (
        f"it was the sum over ranks {list(expected.ranks)} already when it was summed again "
        f"{where(again[0])}"
    )
    return _summed_twice(text, facts, again)


def _summed_twice(
    text: str, facts: GradientFacts, launches: Sequence[CollectiveLaunch]
) -> Cause:
    lines = tuple(each.source for each in launches)
    text += _groups_of_axes(facts, launches)
    return Cause("reduced_twice", text, lines=lines)


def _groups_of_axes(facts: GradientFacts, launches: Iterable[CollectiveLaunch]) -> str:
    """Return the ranks of each mesh axis, where launches took those of all axes instead."""
    expected, mesh = facts.expected, facts.expected.mesh()
    placements = expected.spec.placements or ()
    axes = [
        axis for axis, each in enumerate(placements) if each in {REPLICATE, PARTIAL}
    ]
    if len(axes) < 2 or any({*each.ranks} != {*expected.ranks} for each in launches):
        return ""
    groups = (
        f"{axis_name(mesh, axis)} has ranks {list(ranks_along(mesh, (axis,), expected.rank))}"
        for axis in axes
    )
    return f"; of its mesh axes, {' and '.join(groups)}"


def _is_whole(name: str, launch: CollectiveLaunch) -> bool:
    num_bytes = sum(region.end_byte - region.start_byte for region in launch.regions)
    return any(
        slot.parameter == name and slot.offset_bytes >= 0 and slot.end_byte <= num_bytes
        for slot in launch.slots
    )


def _reduced_early(facts: GradientFacts) -> Cause | None:
    """Find an accumulation after a reduction, made or still to come."""
    if facts.kind not in _LACKS_BACKWARDS or not facts.reductions:
        return None
    launch, count = facts.reductions[-1], facts.expected.count
    micro_batch = launch.moment.micro_batch
    if micro_batch is not None and micro_batch < count - 1:
        return _early(launch, f"not again, before the last of {count} micro-batches")
    for launch in _last_reductions(facts):
        if added := _added_after(facts, launch):
            return _early(launch, f"accumulated again after that ({added.moment})")
    return None


def _added_after(facts: GradientFacts, launch: CollectiveLaunch) -> Access | None:
    after = itertools.dropwhile(lambda record: record is not launch, facts.trace)
    return next(_accumulations(facts.expected, launch, after), None)


def _early(launch: CollectiveLaunch, then: str) -> Cause:
    text = f"it was reduced {where(launch)}, and {then}"
    return Cause("reduced_early", text, lines=(launch.source,))


def _last_reductions(facts: GradientFacts) -> Iterator[CollectiveLaunch]:
    """Yield the last reduction over each group of ranks, such as those of each mesh axis."""
    last = {launch.ranks: launch for launch in facts.reductions}
    return (each for each in reversed(facts.reductions) if last[each.ranks] is each)


def _erased(facts: GradientFacts) -> Cause | None:
    if facts.kind != "never_written" or not facts.reductions:
        return None
    launch = facts.reductions[0]
    before = itertools.takewhile(lambda record: record is not launch, facts.trace)
    added = next(_accumulations(facts.expected, launch, before), None)
    if added is None:
        return None
    text = (
        f"it is all zeros, although autograd added to it ({added.moment}) before it was "
        f"reduced {where(launch)}: it was cleared, or multiplied by 0"
    )
    return Cause("erased", text, lines=(launch.source,))


def _gone(facts: GradientFacts) -> Cause | None:
    """Find the gradient in the memory that is all zeros in the end."""
    if facts.kind != "never_written" or not facts.region_after_each_call:
        return None
    place = facts.region_after_each_call[-1][1]
    if place is None or place.repeats:  # other gradients may lie in its gaps
        return None
    when = next(itertools.chain(_sent_from(place, facts), _seen_at(place, facts)), "")
    text = (
        f"it is all zeros, although rank {facts.expected.rank}'s own gradient was in this "
        f"very memory {when}: it was cleared, or multiplied by 0"
    )
    return Cause("erased", text) if when else None


def _sent_from(place: MemoryRegion, facts: GradientFacts) -> Iterator[str]:
    expected = facts.expected
    own = expected.part(expected.rank).reshape(-1)
    for launch in facts.launches:
        sent = elements(launch)
        for slot in find_slots({expected.spec.name: place}, launch.regions):
            width = slot.num_bytes // len(own)
            start = slot.offset_bytes // width
            if sent is None or start < 0:  # sent from the middle of the gradient on
                continue
            if own.any() and torch.equal(sent[start : start + len(own)], own):
                yield f"when it was sent {where(launch)}"


def _seen_at(place: MemoryRegion, facts: GradientFacts) -> Iterator[str]:
    expected, region_after = facts.expected, dict(facts.region_after_each_call)
    for seen in facts.earlier:
        at = Moment("backward", expected.step, seen.micro_batch)
        gradient = seen.gradients[expected.spec.name]
        if (
            seen.step == expected.step
            and region_after.get(at) == place
            and gradient is not None
        ):
            count = (seen.micro_batch or 0) + 1
            own = expected.part(expected.rank, range(count))
            if own.any() and torch.equal(gradient.double(), own):
                yield f"after {at}"


def _accumulations(
    expected: ExpectedGradient, launch: CollectiveLaunch, trace: Iterable[TraceRecord]
) -> Iterator[Access]:
    """Yield accesses with which autograd adds to the parameter's part of a launch."""
    slots = list(memory(expected.spec.name, launch))
    for record in trace:
        if (
            isinstance(record, Access)
            and record.source == NoLine.AUTOGRAD
            and (record.moment.step, record.moment.phase) == (expected.step, "backward")
            and any(own.overlaps(slot) for own in record.writes for slot in slots)
        ):
            yield record
