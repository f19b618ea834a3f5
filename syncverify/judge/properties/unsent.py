"""A wrong gradient that no collective of its step has; see Note [What a trace can show]."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from syncverify.judge.cause import Cause
from syncverify.judge.properties.circumstances import is_like
from syncverify.judge.properties.gradient_facts import GradientFacts, where
from syncverify.judge.properties.judgement import launches_of_step
from syncverify.judge.properties.sent import (
    elements,
    senders,
    senders_of_cut,
    sent_parameters,
)
from syncverify.judge.traced import launches_of
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import Access, CollectiveLaunch


def not_reset(facts: GradientFacts) -> Cause | None:
    """Find a reduction of the gradient in an earlier step that is like this one."""
    expected, scenario = facts.expected, facts.expected.reference.scenario
    cause = not_reduced(facts)
    if cause is None:
        return None
    for earlier in range(expected.step):
        if not is_like(scenario, expected.step, earlier):
            continue
        for launch in launches_of_step(facts.trace, earlier):
            names = senders(expected.reference, expected.rank, launch) or ()
            if launch.reduces and expected.spec.name in names:
                text = (
                    f"it is rank {expected.rank}'s own gradient: step {earlier} reduced it "
                    f"{where(launch)}, and step {expected.step}, which is like that one, did "
                    "not"
                )
                return Cause("not_reset", text, lines=(launch.source,))
    return None


def not_reduced(facts: GradientFacts) -> Cause | None:
    """Find a gradient of its rank alone."""
    expected, launches = facts.expected, facts.launches
    if not facts.is_unsent:
        return None
    names = [_sent_names(facts, launch) for launch in launches]
    if any(sent is None or expected.spec.name in sent for sent in names):
        return None
    rank = expected.rank
    for launch in _launches_alone(facts):
        text = (
            f"it is rank {rank}'s own gradient: it was reduced {where(launch)}, over rank "
            f"{rank} alone"
        )
        return Cause(facts.kind, text, lines=(launch.source,))
    named = sorted({name for sent in names if sent for name in sent})
    themselves = {
        f"the parameter {name!r} itself"
        for launch in launches
        for name in sent_parameters(expected.reference, rank, launch)
    }
    has = ", ".join([*named, *sorted(themselves)]) or "zeros"
    text = f"it is rank {rank}'s own gradient, and {_sent_instead(facts, has)}"
    return Cause("not_reduced", text)


def _sent_names(
    facts: GradientFacts, launch: CollectiveLaunch
) -> tuple[str, ...] | None:
    """Name the parameters whose gradients a launch sends, or parts of them that are reduced."""
    names = senders_of_cut(facts.expected.reference, facts.expected.rank, launch)
    source = _forwarded(facts, launch) if names is None else None
    return names if source is None else _sent_names(facts, source)


def _forwarded(
    facts: GradientFacts, launch: CollectiveLaunch
) -> CollectiveLaunch | None:
    """Return the reduction whose result a launch sends as it is, such as that of a shard."""
    before = itertools.takewhile(lambda record: record is not launch, facts.trace)
    for record in reversed([*before]):
        written = record.writes if isinstance(record, Access | CollectiveLaunch) else ()
        if any(out.overlaps(sent) for out in written for sent in launch.regions):
            if isinstance(record, CollectiveLaunch) and record.reduces:
                return record if {*launch.regions} <= {*written} else None
            return None
    return None


def hooked_early(facts: GradientFacts) -> Cause | None:
    """Find a gradient that nobody sends, and whose hooks all run before it is added."""
    name, returns = facts.expected.spec.name, facts.returns
    if not returns or name not in returns[-1].hooked_early or facts.launches:
        return None
    cause = not_reduced(facts) or zeros_of_nobody(facts)
    if cause is None:
        return None
    text = (
        f"{cause.text}; the parameter has hooks of `register_hook` alone, which are called with "
        "the gradient, before autograd adds it to `.grad`"
    )
    return Cause("hook_too_early", text, is_certain=False)


def zeros_of_nobody(facts: GradientFacts) -> Cause | None:
    """Find a gradient of zeros that no collective of its step has, though it has to be summed."""
    expected = facts.expected
    if facts.kind != "never_written" or len(expected.ranks) == 1:
        return None
    named = set[str]()
    for launch in facts.launches:
        sent = elements(launch)
        names = senders(expected.reference, expected.rank, launch)
        # Zeros that are sent may be those of the gradient.
        if sent is None or not names or not sent.all() or expected.spec.name in names:
            return None
        named |= {*names}
    has = ", ".join(sorted(named))
    text = f"it is all zeros, and {_sent_instead(facts, has)}"
    return Cause("not_reduced", text)


def _sent_instead(facts: GradientFacts, has: str) -> str:
    """Say of a gradient in no collective of its step which collectives the step has."""
    if facts.launches:
        return f"no collective of the step sent it: they sent {has}"
    # A copy of the gradient may be in a reduction over one rank.
    alone = [*_reductions_over_one_rank(facts)]
    if not alone:
        return "no collective of the step sent it: none was launched"
    one = "each reduction of the step is" if len(alone) > 1 else "the step reduces"
    return f"{one} over rank {facts.expected.rank} alone, {where(alone[0])}"


def _launches_alone(facts: GradientFacts) -> Iterator[CollectiveLaunch]:
    """Yield the reductions of the gradient that its rank shares with nobody."""
    name = facts.expected.spec.name
    for launch in _reductions_over_one_rank(facts):
        if name in launch.parameters:
            yield launch


def _reductions_over_one_rank(facts: GradientFacts) -> Iterator[CollectiveLaunch]:
    step = facts.expected.step
    for launch in launches_of(facts.trace):
        is_alone = len(launch.ranks) == 1 and launch.operation in REDUCING_OPERATIONS
        if is_alone and launch.moment.step == step:
            yield launch
