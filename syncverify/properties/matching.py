"""What ranks that meet in a collective must agree on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from syncverify.layout import contributing_ranks, local_shape
from syncverify.properties.judgement import Finding, Judgement
from syncverify.properties.sent import senders, true_slots
from syncverify.slots import ParameterSlot
from syncverify.trace import REDUCING_OPERATIONS, CollectiveLaunch, Place

# Ranks put equal bytes of a buffer together in these: everywhere else a rank may
# contribute what no other one has.
_COMBINING = REDUCING_OPERATIONS | {"broadcast"}

Meeting = dict[int, CollectiveLaunch]


def collectives_match_across_ranks(judgement: Judgement) -> Iterator[Finding]:
    """On each communicator, the n-th collective is one and the same on all ranks.

    For all communicators and n: ranks agree on operation, reduction, dtype, number of
    elements and root, and all of them issue it if the run reaches its end. Where values
    of several ranks are put together, no two ranks have different parameters at one place
    of the buffer, or one parameter at two places.

    Catches: a group of other ranks than those that share a parameter, where their parts
    differ in size; buckets of equal size in another order on one rank, which no check of shapes
    sees; buckets packed from what a rank happens to use. Knows by name only gradients
    that are exchanged where they lie, and does not hold it against a rank that it has no
    bytes of a parameter.
    """
    meetings = _meetings(judgement)
    found = [*_disagreements(judgement, meetings), *_absences(judgement, meetings)]
    yield from found or _reported(judgement)
    for meeting in meetings.values():
        yield from _mixed_up(judgement, meeting)


def _meetings(judgement: Judgement) -> dict[Place, Meeting]:
    meetings: dict[Place, Meeting] = {}
    for rank, rank_run in enumerate(judgement.run.ranks):
        for event in rank_run.events:
            if isinstance(event, CollectiveLaunch):
                meetings.setdefault(event.place, {})[rank] = event
    return meetings


def _disagreements(
    judgement: Judgement, meetings: dict[Place, Meeting]
) -> Iterator[Finding]:
    """Find the first meeting of each communicator in which ranks disagree.

    What follows it on the same communicator is out of step, and tells nothing new.
    """
    seen = set[tuple[str, tuple[int, ...]]]()
    for (name, ranks, _), meeting in meetings.items():
        (one, launch), *others = meeting.items()
        for other, theirs in others:
            if theirs.terms != launch.terms and (name, ranks) not in seen:
                seen.add((name, ranks))
                lines = (f"rank {one}: {launch}", f"rank {other}: {theirs}")
                foreign = _foreign(judgement, {one: launch, other: theirs})
                if foreign:
                    what = f": no axis reduces {', '.join(foreign)} over these ranks"
                    cause = "foreign_contribution"
                    yield from _both(cause, (one, other), what, lines)
                else:
                    yield from _both("collective_mismatch", (one, other), "", lines)


def _foreign(judgement: Judgement, meeting: Meeting) -> tuple[str, ...]:
    """Name what is sent, if no rank sends anything that is to be reduced there."""
    if not judgement.run.carries_data:
        return ()
    mesh = judgement.scenario.mesh
    specs = {spec.name: spec for spec in judgement.scenario.parameters}
    found = list[str]()
    for rank, launch in meeting.items():
        names = senders(judgement.reference, rank, launch)
        if names is None:
            return ()
        for name in names:
            if {*launch.ranks} <= {*contributing_ranks(mesh, specs[name], rank)}:
                return ()
        found += names
    return tuple(sorted({*found}))


def _absences(
    judgement: Judgement, meetings: dict[Place, Meeting]
) -> Iterator[Finding]:
    """Find ranks that issue fewer collectives than their peers, and are not waited for."""
    if judgement.run.fault is not None:  # others never got there
        return
    played = {rank for rank, own in enumerate(judgement.run.ranks) if own.events}
    for (_, ranks, _), meeting in meetings.items():
        for rank in sorted((played & {*ranks}) - meeting.keys()):
            peer, launch = next(iter(meeting.items()))
            summary = f"rank {rank} never issues what rank {peer} does: {launch}"
            evidence = {"details": [f"rank {peer}: {launch}, in {launch.moment}"]}
            yield Finding("collective_missing", summary, rank, None, evidence)


def _reported(judgement: Judgement) -> Iterator[Finding]:
    """Take a mismatch over from the backend: it saw sizes that the trace does not say."""
    fault = judgement.run.fault
    if fault is not None and fault.kind == "collective_mismatch":
        for rank in fault.ranks:
            evidence = {"details": list(fault.details)}
            yield Finding("collective_mismatch", fault.summary, rank, None, evidence)


def _mixed_up(judgement: Judgement, meeting: Meeting) -> Iterator[Finding]:
    named = [
        (rank, launch)
        for rank, launch in meeting.items()
        if launch.operation in _COMBINING and launch.slots
    ]
    for (one, launch), (other, theirs) in itertools.pairwise(named):
        for slot, their_slot in _conflicts(judgement, (one, launch), (other, theirs)):
            what = (
                f": {slot} on rank {one} meets {their_slot} on rank {other} "
                f"({launch.moment})"
            )
            lines = (f"rank {one}: {launch}", f"rank {other}: {theirs}")
            names = (slot.parameter, their_slot.parameter)
            yield from _both("bucket_mismatch", (one, other), what, lines, names)


def _conflicts(
    judgement: Judgement,
    one: tuple[int, CollectiveLaunch],
    other: tuple[int, CollectiveLaunch],
) -> Iterator[tuple[ParameterSlot, ParameterSlot]]:
    """Find pairs of slots of two ranks that exclude each other."""
    (rank, launch), (peer, theirs) = one, other
    # Most launches agree, and to look at their values takes longer than all else.
    if any(_excluding(judgement, (rank, launch.slots), (peer, theirs.slots))):
        slots = true_slots(judgement.reference, rank, launch)
        their_slots = true_slots(judgement.reference, peer, theirs)
        yield from _excluding(judgement, (rank, slots), (peer, their_slots))


def _excluding(
    judgement: Judgement,
    one: tuple[int, Sequence[ParameterSlot]],
    other: tuple[int, Sequence[ParameterSlot]],
) -> Iterator[tuple[ParameterSlot, ParameterSlot]]:
    (rank, slots), (peer, theirs) = one, other
    if slots == theirs:
        return
    common = {s.parameter for s in slots} & {s.parameter for s in theirs}
    for slot in slots:
        for their_slot in theirs:
            if slot.parameter == their_slot.parameter:
                moved = slot.offset_bytes != their_slot.offset_bytes
                if moved and not _also_there(slot, theirs):
                    yield slot, their_slot
            elif not common & {slot.parameter, their_slot.parameter}:
                known = _holds(judgement, peer, slot) or _holds(
                    judgement, rank, their_slot
                )
                if known and _overlap(slot, their_slot):
                    yield slot, their_slot


def _also_there(slot: ParameterSlot, theirs: Iterable[ParameterSlot]) -> bool:
    """Tell whether a gradient that a contribution holds twice lies here as well."""
    return any(
        (s.parameter, s.offset_bytes) == (slot.parameter, slot.offset_bytes)
        for s in theirs
    )


def _overlap(one: ParameterSlot, other: ParameterSlot) -> bool:
    return one.offset_bytes < other.end_byte and other.offset_bytes < one.end_byte


def _holds(judgement: Judgement, rank: int, slot: ParameterSlot) -> bool:
    """Tell whether a rank has bytes of a parameter's gradient."""
    scenario = judgement.scenario
    return any(
        math.prod(local_shape(scenario.mesh, spec, rank)) > 0
        for spec in scenario.parameters
        if spec.name == slot.parameter and spec.requires_grad
    )


def _both(
    cause: str,
    ranks: tuple[int, int],
    what: str,
    lines: tuple[str, str],
    names: tuple[str | None, str | None] = (None, None),
) -> Iterator[Finding]:
    summary = f"ranks {list(ranks)} met in one collective and disagree{what}"
    for rank, name in zip(ranks, names, strict=True):
        yield Finding(cause, summary, rank, name, {"details": list(lines)})
