"""Gradients that were views into reduced memory, until others took their place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from syncverify.judge.cause import Cause
from syncverify.judge.properties.gradient_facts import GradientFacts, memory, where
from syncverify.judge.traced import launches_of
from syncverify.scenario.feature_table import EVENTS
from syncverify.scenario.scenario import Scenario
from syncverify.trace.records import Moment
from syncverify.trace.regions import MemoryRegion


def view_lost(facts: GradientFacts) -> Cause | None:
    """Find a launch of memory in which the gradient lay in an earlier step."""
    expected = facts.expected
    if not facts.is_unsent:
        return None
    for record in launches_of(facts.trace):
        if record.moment.step >= expected.step:
            continue
        slots = list(memory(expected.spec.name, record))
        for launch in facts.launches:
            if any(own.overlaps(slot) for own in launch.regions for slot in slots):
                text = (
                    f"it is rank {expected.rank}'s own gradient: `.grad` does not lie in the "
                    f"memory that is reduced {where(launch)}, where it lay in step "
                    f"{record.moment.step}"
                )
                return Cause("view_lost", text, lines=(launch.source,))
    return None


def moved(facts: GradientFacts) -> Cause | None:
    """Find a launch of the memory of bind(), after the caller moved the gradient."""
    if facts.kind != "stale" and not facts.is_unsent:
        return None
    for place, step in _left(facts):
        for record in launches_of(facts.trace):
            is_later = record.moment.step >= step
            if is_later and any(sent.overlaps(place) for sent in record.regions):
                text = (
                    f"{_content(facts)}: `.grad` does not lie in the memory that is reduced "
                    f"{where(record)}, where bind() had put it, since the caller changed "
                    f"parameters before step {step}"
                )
                return Cause("view_lost", text, lines=(record.source,))
    return None


def _content(facts: GradientFacts) -> str:
    if facts.is_unsent:
        return f"it is rank {facts.expected.rank}'s own gradient"
    return "it contains gradients of earlier steps"


def _left(facts: GradientFacts) -> Iterator[tuple[MemoryRegion, int]]:
    """Yield the memory of bind(), and the first step after the caller moved the gradient."""
    calls = facts.region_after_each_call
    scenario = facts.expected.reference.scenario
    bound = [index for index, (at, _) in enumerate(calls) if at.phase == "bind"]
    place = calls[bound[-1]][1] if bound else None
    if place is None:
        return
    pairs = itertools.pairwise(calls[bound[-1] :])
    moves = [(before, at) for (before, there), (at, here) in pairs if there != here]
    if moves and all(_is_callers(scenario, *move) for move in moves):
        step = moves[0][1].step
        follows = EVENTS[scenario.step_event(step)].is_before_zero
        yield place, step + 1 if follows else step


def _is_callers(scenario: Scenario, before: Moment, at: Moment) -> bool:
    """Tell whether a call is the change of parameters that is the event of a step."""
    event = EVENTS[scenario.step_event(at.step)]
    if at.phase != "zero_grad":
        return False
    if event.is_before_zero:
        return before.phase == "wait"
    is_first = before.phase == "bind" or before.step < at.step
    return is_first and bool(event.change)
