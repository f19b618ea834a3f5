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

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch

from syncverify.judge.decoding import as_float
from syncverify.judge.properties.circumstances import is_like
from syncverify.judge.properties.copied_buckets import refilled, unpacked_otherwise
from syncverify.judge.properties.gradient_facts import (
    GradientFacts,
    before,
    since,
    where,
)
from syncverify.judge.properties.judgement import launches_of_step
from syncverify.judge.reference import ExpectedGradient
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Cause
from syncverify.scenario.feature_row import base_word
from syncverify.scenario.feature_table import EVENTS
from syncverify.scenario.layout import axis_name, ranks_along
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import PARTIAL, REPLICATE
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    Moment,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion, find_slots, overlap
from syncverify.trace.run import Observation, RankRun
from syncverify.trace.source_lines import NoLine

_COUNTED_OFTEN = frozenset({"scaled", "contribution_doubled", "miscounted"})
_LACKS_MICRO_BATCH = frozenset({"micro_batch_missing", "never_written"})
_LACKS_BACKWARDS = _LACKS_MICRO_BATCH | {
    "miscounted",
    "partly_wrong",
    "rank_contribution_missing",
    "unexplained",
}


def mechanism(
    expected: ExpectedGradient,
    observation: Observation,
    cause: Cause,
    rank_run: RankRun,
) -> Cause:
    """Return the first cause that the trace tells, or `cause` if it tells nothing more."""
    observed = observation.gradients[expected.spec.name]
    if observed is None:
        return cause
    facts = GradientFacts(expected, observation, observed, cause.kind, rank_run)
    proposals = (
        _failure_hidden,
        _view_lost,
        _moved,
        _shared,
        _in_tensor_hook,
        refilled,
        unpacked_otherwise,
        _not_awaited,
        _result_dropped,
        _not_reset,
        _hooked_early,
        _not_reduced,
        _reduced_twice,
        _summed_again,
        _reduced_early,
        _erased,
        _zeros_of_nobody,
        _gone,
    )
    causes = (found for proposal in proposals for found in proposal(facts))
    return next(causes, cause)


def _failure_hidden(facts: GradientFacts) -> Iterator[Cause]:
    """Find a failed collective that had to bring the others' parts."""
    expected = facts.expected
    events = expected.scenario.events[: expected.step + 1]
    may_fail = "failing_collectives" in map(base_word, events)
    for launch in (facts.reductions or facts.launches)[:1] if may_fail else ():
        text = (
            f"{launch.operation} {where(launch)} failed, and the error of its wait never reached "
            "the training program"
        )
        yield Cause("failure_hidden", text, lines=(launch.source,))


def _view_lost(facts: GradientFacts) -> Iterator[Cause]:
    """Find a launch of memory in which the gradient lay in an earlier step."""
    for record in launches_of(facts.trace if facts.is_unsent else ()):
        is_earlier = record.moment.step < facts.expected.step
        slots = [*facts.memory(record)] if is_earlier else []
        for launch in facts.launches:
            if overlap(launch.regions, slots):
                text = (
                    f"{facts.own_words}: `.grad` does not lie in the memory that is reduced "
                    f"{where(launch)}, where it lay in step {record.moment.step}"
                )
                yield Cause("view_lost", text, lines=(launch.source,))


def _moved(facts: GradientFacts) -> Iterator[Cause]:
    """Find a launch of the memory of bind(), after the caller moved the gradient."""
    if facts.kind != "stale" and not facts.is_unsent:
        return
    content = "it contains gradients of earlier steps"
    for place, step in _left(facts):
        for record in launches_of(facts.trace):
            if record.moment.step >= step and overlap(record.regions, [place]):
                text = (
                    f"{facts.own_words if facts.is_unsent else content}: `.grad` does not lie in "
                    f"the memory that is reduced {where(record)}, where bind() had put it, since "
                    f"the caller changed parameters before step {step}"
                )
                yield Cause("view_lost", text, lines=(record.source,))


def _left(facts: GradientFacts) -> Iterator[tuple[MemoryRegion, int]]:
    """Yield the memory of bind(), and the first step after the caller moved the gradient."""
    calls, scenario = facts.region_after_each_call, facts.expected.scenario
    bound = [index for index, (at, _) in enumerate(calls) if at.phase == "bind"]
    since_bind = calls[bound[-1] :] if bound else []
    moves = [
        (before, at)
        for (before, there), (at, here) in itertools.pairwise(since_bind)
        if there != here
    ]
    is_callers = all(_is_callers(scenario, *move) for move in moves)
    if moves and is_callers and (place := since_bind[0][1]) is not None:
        step = moves[0][1].step
        yield place, step + EVENTS[scenario.step_event(step)].is_before_zero


def _is_callers(scenario: Scenario, before: Moment, at: Moment) -> bool:
    """Tell whether a call is the change of parameters that is the event of a step."""
    event = EVENTS[scenario.step_event(at.step)]
    if event.is_before_zero:
        return at.phase == "zero_grad" and before.phase == "wait"
    is_first = before.phase == "bind" or before.step < at.step
    return at.phase == "zero_grad" and is_first and bool(event.change)


def _shared(facts: GradientFacts) -> Iterator[Cause]:
    """Find another gradient that lies in the same bytes."""
    gradients = facts.returns[-1].gradients if facts.returns else {}
    own = gradients.get(facts.name)
    if own is None or own.repeats or facts.observed.numel() == 0:
        return
    for other, region in gradients.items():
        if other != facts.name and not region.repeats and own.overlaps(region):
            also = f"its memory is also that of the gradient of {other!r}"
            text = f"{also}: what is added to one of them is in both"
            yield Cause("memory_shared", text)


def _in_tensor_hook(facts: GradientFacts) -> Iterator[Cause]:
    """Find a reduction of the gradient before the accumulation that its hook precedes."""
    for launch in launches_of(facts.trace):
        if not launch.in_tensor_hook or launch.moment.step != facts.expected.step:
            continue
        names = facts.senders(launch)
        may_be_sent = not names and facts.kind in _LACKS_MICRO_BATCH
        is_sent = may_be_sent or facts.name in names
        if is_sent and facts.kind in {*_LACKS_BACKWARDS, "reduced_early"}:
            text = (
                f"it was reduced {where(launch)}, inside of a hook that runs before "
                "autograd adds the gradient of the micro-batch to `.grad`"
            )
            yield Cause("hook_too_early", text, lines=(launch.source,))


def _not_awaited(facts: GradientFacts) -> Iterator[Cause]:
    """Find a reduction of the gradient for which nothing waited."""
    waited = {each.key for each in facts.trace if isinstance(each, CollectiveWait)}
    for launch in facts.sent_reductions if facts.is_own else ():
        # Only a recorder that knows streams records waits.
        is_async = launch.communication_stream != launch.stream
        if is_async and launch.key not in waited:
            reduced = f"it was reduced {where(launch)}"
            text = f"{facts.own_words}: {reduced}, and nothing waited for the result"
            yield Cause(facts.kind, text, lines=(launch.source,))


def _result_dropped(facts: GradientFacts) -> Iterator[Cause]:
    """Find a reduction of the gradient that does not write to the memory of `.grad`."""
    places = [place for _, place in facts.region_after_each_call if place]
    for launch in facts.sent_reductions if facts.is_own and places else ():
        # Real processes do not tell where results go, but an all-reduce works in place.
        in_place = launch.regions if launch.operation == "all_reduce" else ()
        written = launch.written or in_place
        if written and not overlap(written, places[-1:]):
            text = (
                f"{facts.own_words}: it was reduced {where(launch)}, and the result never came "
                "into `.grad`"
            )
            yield Cause("result_dropped", text, lines=(launch.source,))


def _not_reset(facts: GradientFacts) -> Iterator[Cause]:
    """Find a reduction of the gradient in an earlier step that is like this one."""
    step, scenario = facts.expected.step, facts.expected.scenario
    for earlier in range(step if any(_not_reduced(facts)) else 0):
        for launch in launches_of_step(facts.trace, earlier):
            is_sent = launch.reduces and facts.name in facts.senders(launch)
            if is_sent and is_like(scenario, step, earlier):
                text = (
                    f"{facts.own_words}: step {earlier} reduced it {where(launch)}, and step "
                    f"{step}, which is like that one, did not"
                )
                yield Cause("not_reset", text, lines=(launch.source,))


def _hooked_early(facts: GradientFacts) -> Iterator[Cause]:
    """Find a gradient that nobody sends, and whose hooks all run before it is added."""
    hooked = facts.returns[-1].hooked_early if facts.returns else ()
    is_hooked = facts.name in hooked and not facts.launches
    proposals = (_not_reduced, _zeros_of_nobody) if is_hooked else ()
    for cause in itertools.chain(*(find(facts) for find in proposals)):
        text = (
            f"{cause.text}; the parameter has hooks of `register_hook` alone, which are called "
            "with the gradient, before autograd adds it to `.grad`"
        )
        yield Cause("hook_too_early", text, is_certain=False)


def _not_reduced(facts: GradientFacts) -> Iterator[Cause]:
    """Find a gradient of its rank alone."""
    names = (
        [_sent_names(facts, e) for e in facts.launches] if facts.is_unsent else [None]
    )
    if any(sent is None or facts.name in sent for sent in names):
        return
    for launch in _reductions_over_one_rank(facts):
        if facts.name in launch.parameters:
            text = f"{facts.own_words}: it was reduced {where(launch)}, over rank {facts.rank} alone"
            yield Cause(facts.kind, text, lines=(launch.source,))
    parameters = (name for e in facts.launches for name in facts.sent(e).parameters)
    themselves = {f"the parameter {name!r} itself" for name in parameters}
    known = sorted({name for sent in names for name in sent or ()})
    has = ", ".join([*known, *sorted(themselves)]) or "zeros"
    yield Cause("not_reduced", f"{facts.own_words}, and {_sent_instead(facts, has)}")


def _sent_names(
    facts: GradientFacts, launch: CollectiveLaunch
) -> tuple[str, ...] | None:
    """Name the parameters whose gradients a launch sends, or parts of them that are reduced."""
    names = facts.sent(launch).names_of_cut
    source = _forwarded(facts, launch) if names is None else None
    return names if source is None else _sent_names(facts, source)


def _forwarded(
    facts: GradientFacts, launch: CollectiveLaunch
) -> CollectiveLaunch | None:
    """Return the reduction whose result a launch sends as it is, such as that of a shard."""
    for record in reversed([*before(launch, facts.trace)]):
        written = record.writes if isinstance(record, Access | CollectiveLaunch) else ()
        if overlap(written, launch.regions):
            is_whole = {*launch.regions} <= {*written}
            if isinstance(record, CollectiveLaunch) and record.reduces and is_whole:
                return record
            return None
    return None


def _zeros_of_nobody(facts: GradientFacts) -> Iterator[Cause]:
    """Find a gradient of zeros that no collective of its step has, though it has to be summed."""
    if facts.kind != "never_written" or len(facts.expected.ranks) == 1:
        return
    known = set[str]()
    for launch in facts.launches:
        sent, names = facts.sent(launch).elements, facts.senders(launch)
        # Zeros that are sent may be those of the gradient.
        if sent is None or not names or not sent.all() or facts.name in names:
            return
        known |= {*names}
    text = f"it is all zeros, and {_sent_instead(facts, ', '.join(sorted(known)))}"
    yield Cause("not_reduced", text)


def _sent_instead(facts: GradientFacts, has: str) -> str:
    """Say of a gradient in no collective of its step which collectives the step has."""
    if facts.launches:
        return f"no collective of the step sent it: they sent {has}"
    # A copy of the gradient may be in a reduction over one rank.
    alone = _reductions_over_one_rank(facts)
    if not alone:
        return "no collective of the step sent it: none was launched"
    one = "each reduction of the step is" if len(alone) > 1 else "the step reduces"
    return f"{one} over rank {facts.rank} alone, {where(alone[0])}"


def _reductions_over_one_rank(facts: GradientFacts) -> list[CollectiveLaunch]:
    return [
        launch
        for launch in launches_of(facts.trace)
        if len(launch.ranks) == 1
        and launch.operation in REDUCING_OPERATIONS
        and launch.moment.step == facts.expected.step
    ]


def _reduced_twice(facts: GradientFacts) -> Iterator[Cause]:
    # A second mean changes nothing; a second sum multiplies by the number of its ranks.
    whole = filter(facts.is_whole_in, facts.reductions)
    sums = [launch for launch in whole if launch.reduce_op == "SUM"]
    again = Counter(record.ranks for record in sums)
    factor = math.prod(len(ranks) ** (count - 1) for ranks, count in again.items())
    value = facts.expected.value() * as_float(factor)
    if facts.kind in _COUNTED_OFTEN and facts.equals(value):
        pairs = itertools.combinations(sums, 2)
        first, second = next(pair for pair in pairs if pair[0].ranks == pair[1].ranks)
        twice = f"it was reduced {where(first)} and {where(second)}"
        text = f"ranks {list(first.ranks)} summed their sum again: {twice}"
        yield _summed_twice(text, facts, [first, second])


def _summed_again(facts: GradientFacts) -> Iterator[Cause]:
    """Find a launch that sends a sum over its ranks; see `_reduced_twice`."""
    expected = facts.expected
    if facts.kind not in _COUNTED_OFTEN or len(expected.ranks) == 1:
        return
    summed, factor, again = expected.total(expected.ranks), 1, list[CollectiveLaunch]()
    for launch in facts.launches:
        is_among = launch.reduce_op == "SUM" and {*launch.ranks} <= {*expected.ranks}
        value = summed * as_float(factor)
        if is_among and facts.sent(launch).has(facts.name, value):
            again.append(launch)
            factor *= len(launch.ranks)
    if again and facts.equals(expected.value() * as_float(factor)):
        whole = f"the sum over ranks {list(expected.ranks)}"
        text = f"it was {whole} already when it was summed again {where(again[0])}"
        yield _summed_twice(text, facts, again)


def _summed_twice(
    text: str, facts: GradientFacts, launches: Sequence[CollectiveLaunch]
) -> Cause:
    """Return the cause, with the ranks of each mesh axis, where launches took those of all."""
    expected, mesh = facts.expected, facts.expected.mesh()
    placements = enumerate(expected.spec.placements or ())
    axes = [axis for axis, each in placements if each in {REPLICATE, PARTIAL}]
    if len(axes) > 1 and all({*e.ranks} == {*expected.ranks} for e in launches):
        groups = (
            f"{axis_name(mesh, axis)} has ranks {list(ranks_along(mesh, (axis,), facts.rank))}"
            for axis in axes
        )
        text += f"; of its mesh axes, {' and '.join(groups)}"
    return Cause("reduced_twice", text, lines=tuple(each.source for each in launches))


def _reduced_early(facts: GradientFacts) -> Iterator[Cause]:
    """Find an accumulation after a reduction, made or still to come."""
    if facts.kind not in _LACKS_BACKWARDS or not facts.reductions:
        return
    launch, count = facts.reductions[-1], facts.expected.count
    micro_batch = launch.moment.micro_batch
    if micro_batch is not None and micro_batch < count - 1:
        yield _early(launch, f"not again, before the last of {count} micro-batches")
    # The last reduction over each group of ranks, such as those of each mesh axis.
    last = {launch.ranks: launch for launch in facts.reductions}
    for launch in (e for e in reversed(facts.reductions) if last[e.ranks] is e):
        for added in _accumulations(facts, launch, since(launch, facts.trace)):
            yield _early(launch, f"accumulated again after that ({added.moment})")


def _early(launch: CollectiveLaunch, then: str) -> Cause:
    text = f"it was reduced {where(launch)}, and {then}"
    return Cause("reduced_early", text, lines=(launch.source,))


def _erased(facts: GradientFacts) -> Iterator[Cause]:
    for launch in facts.reductions[:1] if facts.kind == "never_written" else ():
        for added in _accumulations(facts, launch, before(launch, facts.trace)):
            text = (
                f"it is all zeros, although autograd added to it ({added.moment}) before it was "
                f"reduced {where(launch)}: it was cleared, or multiplied by 0"
            )
            yield Cause("erased", text, lines=(launch.source,))


def _accumulations(
    facts: GradientFacts, launch: CollectiveLaunch, trace: Iterable[TraceRecord]
) -> Iterator[Access]:
    """Yield accesses with which autograd adds to the parameter's part of a launch."""
    slots, step = list(facts.memory(launch)), facts.expected.step
    for record in trace:
        if isinstance(record, Access) and record.source == NoLine.AUTOGRAD:
            is_now = record.moment.step == step and record.moment.phase == "backward"
            if is_now and overlap(record.writes, slots):
                yield record


def _gone(facts: GradientFacts) -> Iterator[Cause]:
    """Find the gradient in the memory that is all zeros in the end."""
    if facts.kind != "never_written" or not facts.region_after_each_call:
        return
    place = facts.region_after_each_call[-1][1]
    if place is None or place.repeats:  # other gradients may lie in its gaps
        return
    for when in itertools.chain(_sent_from(place, facts), _seen_at(place, facts)):
        text = (
            f"it is all zeros, although rank {facts.rank}'s own gradient was in this "
            f"very memory {when}: it was cleared, or multiplied by 0"
        )
        yield Cause("erased", text)


def _sent_from(place: MemoryRegion, facts: GradientFacts) -> Iterator[str]:
    own = facts.expected.part(facts.rank).reshape(-1)
    for launch in facts.launches if own.any() else ():
        sent = facts.sent(launch).elements
        for slot in find_slots({facts.name: place}, launch.regions):
            start = slot.offset_bytes // (slot.num_bytes // len(own))
            # Below 0, it is sent from the middle of the gradient on.
            here = None if sent is None or start < 0 else sent[start : start + len(own)]
            if here is not None and torch.equal(here, own):
                yield f"when it was sent {where(launch)}"


def _seen_at(place: MemoryRegion, facts: GradientFacts) -> Iterator[str]:
    step, region_after = facts.expected.step, dict(facts.region_after_each_call)
    for seen in facts.rank_run.observations:
        if seen is facts.observation:
            return
        at = Moment("backward", step, seen.micro_batch)
        gradient = seen.gradients[facts.name]
        if gradient is not None and seen.step == step and region_after.get(at) == place:
            own = facts.expected.part(facts.rank, range((seen.micro_batch or 0) + 1))
            if own.any() and torch.equal(gradient.double(), own):
                yield f"after {at}"
