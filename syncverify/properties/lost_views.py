"""Gradients that were views into what is reduced, until somebody put others in their place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from syncverify.decoding import Cause
from syncverify.lifecycle.changes import CHANGES
from syncverify.memory import MemoryRegion
from syncverify.properties.evidence import Evidence, memory, where
from syncverify.scenario import Scenario
from syncverify.trace import CollectiveLaunch, Moment


def view_lost(evidence: Evidence) -> Cause | None:
    """Find a launch of memory in which the gradient lay in an earlier step."""
    owed = evidence.owed
    if not evidence.is_unsent:
        return None
    for event in evidence.events:
        if not isinstance(event, CollectiveLaunch) or event.moment.step >= owed.step:
            continue
        slots = list(memory(owed.spec.name, event))
        for launch in evidence.launches:
            if any(own.overlaps(slot) for own in launch.regions for slot in slots):
                text = (
                    f"it is rank {owed.rank}'s own gradient: `.grad` does not lie in the "
                    f"memory that is reduced {where(launch)}, where it lay in step "
                    f"{event.moment.step}"
                )
                return Cause("view_lost", text)
    return None


def moved(evidence: Evidence) -> Cause | None:
    """Find a launch of memory in which bind() had put it, and which the caller left."""
    if evidence.kind != "stale" and not evidence.is_unsent:
        return None
    for place, step in _left(evidence):
        for event in evidence.events:
            if (
                isinstance(event, CollectiveLaunch)
                and event.moment.step >= step
                and any(sent.overlaps(place) for sent in event.regions)
            ):
                text = (
                    f"{_what(evidence)}: `.grad` does not lie in the memory that is reduced "
                    f"{where(event)}, where bind() had put it, since the caller changed "
                    f"parameters before step {step}"
                )
                return Cause("view_lost", text)
    return None


def _what(evidence: Evidence) -> str:
    if evidence.is_unsent:
        return f"it is rank {evidence.owed.rank}'s own gradient"
    return "it contains what earlier steps have left"


def _left(evidence: Evidence) -> Iterator[tuple[MemoryRegion, int]]:
    """Yield where bind() had put it, and since when it is elsewhere, if nobody else moved it."""
    lay, scenario = evidence.lay, evidence.owed.reference.scenario
    bound = [index for index, (at, _) in enumerate(lay) if at.phase == "bind"]
    place = lay[bound[-1]][1] if bound else None
    if place is None:
        return
    pairs = itertools.pairwise(lay[bound[-1] :])
    moves = [(before, at) for (before, there), (at, here) in pairs if there != here]
    if moves and all(_is_callers(scenario, *calls) for calls in moves):
        yield place, moves[0][1].step


def _is_callers(scenario: Scenario, before: Moment, at: Moment) -> bool:
    """Tell whether a call is the change of parameters with which a step begins."""
    is_first = before.phase == "bind" or before.step < at.step
    return is_first and at.phase == "zero_grad" and scenario.event(at.step) in CHANGES
