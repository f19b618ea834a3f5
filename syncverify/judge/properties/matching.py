"""The property of ranks that meet in a collective: they agree on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from syncverify.judge.cause import Cause, Mistake
from syncverify.judge.evidence import Disagreement, Event, ended
from syncverify.judge.properties.circumstances import skips
from syncverify.judge.properties.disagreements import why
from syncverify.judge.properties.groups_made import GROUPS_DIFFER, groups_that_differ
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.property import Property
from syncverify.judge.properties.sent import true_slots
from syncverify.judge.signs import Circumstance
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Violation, finding
from syncverify.scenario.layout import local_shape
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.run import Run
from syncverify.trace.slots import ParameterSlot

# These use the same bytes of all ranks' buffers. In other operations, such as an
# all-gather, each rank may contribute different parameters.
_COMBINING = REDUCING_OPERATIONS | {"broadcast"}

MatchedLaunches = dict[int, CollectiveLaunch]
# Why two of the ranks disagree.
Reason = Callable[[MatchedLaunches, tuple[int, int]], Cause]


def ranks_meet(judgement: Judgement) -> bool:
    """A rank issues a collective over two ranks or more, or a message."""
    return any(len(each.ranks) > 1 for each in launches_of(judgement.records))


def collectives_match_across_ranks(judgement: Judgement) -> Iterator[Violation]:
    """On each communicator, the n-th collective is the same on all ranks.

    For all communicators and n: ranks agree on operation, reduction, dtype, number of
    elements and root, and all of them issue it if the run reaches its end. In operations
    that combine values of several ranks, no two ranks have different parameters at one
    place of the buffer, or one parameter at two places.

    Catches: a group whose ranks are not those that share a parameter, where their parts
    differ in size. Buckets of equal size in another order on one rank, which no check of shapes
    sees. Buckets packed from the parameters that a rank happens to use. Knows by name only
    gradients that are sent from `.grad` itself, and permits a rank without bytes of a
    parameter.
    """
    for found in mismatches(judgement.run, partial(why, judgement)):
        if found.cause == "collective_missing":
            clues = replace(found.clues, shows=skips(judgement))
            yield replace(found, clues=clues)
        else:
            yield found
    for launches in _matched_launches(judgement.run).values():
        yield from _mixed_up(judgement, launches)


COLLECTIVES_MATCH_ACROSS_RANKS = Property(
    collectives_match_across_ranks,
    order=30,
    applies=ranks_meet,
    example="two buckets of equal size, swapped on one rank",
    needs_data=False,
    leads_to=("launch_order_agrees", "every_rank_finishes", "every_wait_completes"),
    causes=(
        GROUPS_DIFFER,
        Mistake(
            "collective_mismatch",
            "ranks call one collective with different arguments",
            "issue the same collectives, with the same sizes and in the same order, on every "
            "rank: in no branch of one rank, and not in the order of a set, of id() or of a "
            "hash",
            shows=Circumstance.OTHER_CONTENTS,
        ),
        Mistake(
            "collective_missing",
            "a rank issues fewer collectives than its peers",
            "issue every collective on all ranks of its group, or on none",
        ),
        Mistake(
            "groups_mixed",
            "one bucket has gradients that belong to several groups of ranks",
            "keep gradients in one bucket only if they are reduced over the same ranks: "
            "make the group a part of the key of buckets",
            shows=Circumstance.OTHER_CONTENTS,
        ),
        Mistake(
            "buckets_differ",
            "ranks divide the same parameters into different buckets",
            "fill buckets in the same order and to the same sizes on all ranks: not in the "
            "order of a set, of id() or of a hash, and not by bytes that only one rank has",
            shows=Circumstance.OTHER_CONTENTS,
        ),
        Mistake(
            "bucket_mismatch",
            "one place of a bucket holds different parameters on two ranks",
            "put the same parameters into the n-th bucket on every rank, used or not: not "
            "in the order of a set, of id() or of a hash",
            shows=Circumstance.OTHER_CONTENTS,
        ),
    ),
)


def mismatches(run: Run, reason: Reason) -> Iterator[Violation]:
    """Find collectives on which ranks do not agree, in the traces of any program.

    Args:
        run: The run.
        reason: Returns why two ranks disagree, from the launches of a collective by rank and
            the two ranks.
    """
    matched = _matched_launches(run)
    found = [
        *groups_that_differ(run),
        *_disagreements(matched, reason),
        *_absences(run, matched),
    ]
    yield from found or _reported(run)


def _matched_launches(run: Run) -> dict[CollectiveKey, MatchedLaunches]:
    matched: dict[CollectiveKey, MatchedLaunches] = {}
    for rank, rank_run in enumerate(run.ranks):
        for launch in launches_of(rank_run.trace):
            matched.setdefault(launch.key, {})[rank] = launch
    return matched


def _disagreements(
    matched: dict[CollectiveKey, MatchedLaunches], reason: Reason
) -> Iterator[Violation]:
    """Find the first collective of each communicator in which ranks disagree.

    Later collectives of that communicator are out of step and tell nothing new.
    """
    seen = set[tuple[str, tuple[int, ...]]]()
    for (name, ranks, _), launches in matched.items():
        (one, launch), *others = launches.items()
        for other, theirs in others:
            if (
                theirs.matched_arguments != launch.matched_arguments
                and (name, ranks) not in seen
            ):
                seen.add((name, ranks))
                events = _of_ranks({one: launch, other: theirs})
                yield from _both(reason(launches, (one, other)), events)


def _absences(
    run: Run, matched: dict[CollectiveKey, MatchedLaunches]
) -> Iterator[Violation]:
    """Find ranks that issue fewer collectives than their peers, though the run ended."""
    if run.fault is not None:  # ranks may not have reached their launches
        return
    played = {rank for rank, own in enumerate(run.ranks) if own.trace}
    for (_, ranks, _), launches in matched.items():
        for rank in sorted((played & {*ranks}) - launches.keys()):
            peer, launch = next(iter(launches.items()))
            summary = f"rank {rank} never issues a collective of rank {peer}: {launch}"
            details = f"rank {peer}: {launch}, in {launch.moment}"
            evidence = Disagreement(events=(Event(details, launch),))
            yield finding("collective_missing", summary, rank, None, evidence)


def _reported(run: Run) -> Iterator[Violation]:
    """Take over a mismatch from the backend: it sees sizes that the trace does not have."""
    fault = run.fault
    if fault is not None and fault.kind == "collective_mismatch":
        for rank in fault.ranks:
            evidence = ended(fault)
            yield finding("collective_mismatch", fault.summary, rank, None, evidence)


def _mixed_up(judgement: Judgement, launches: MatchedLaunches) -> Iterator[Violation]:
    named = [
        (rank, launch)
        for rank, launch in launches.items()
        if launch.operation in _COMBINING and launch.slots
    ]
    for (one, launch), (other, theirs) in itertools.pairwise(named):
        for slot, their_slot in _conflicts(judgement, (one, launch), (other, theirs)):
            details = (
                f": {slot} on rank {one} meets {their_slot} on rank {other} "
                f"({launch.moment})"
            )
            events = _of_ranks({one: launch, other: theirs})
            names = (slot.parameter, their_slot.parameter)
            yield from _both(Cause("bucket_mismatch", details), events, names)


def _conflicts(
    judgement: Judgement,
    one: tuple[int, CollectiveLaunch],
    other: tuple[int, CollectiveLaunch],
) -> Iterator[tuple[ParameterSlot, ParameterSlot]]:
    """Find pairs of slots of two ranks that exclude each other."""
    (rank, launch), (peer, theirs) = one, other
    # Values are read only where slots conflict: reading them is the slowest part.
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
    """Tell whether a contribution that holds a gradient twice has it at this place too."""
    place = (slot.parameter, slot.offset_bytes)
    return any((other.parameter, other.offset_bytes) == place for other in theirs)


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


def _of_ranks(launches: MatchedLaunches) -> dict[int, Event]:
    return {
        rank: Event(f"rank {rank}: {each}", each) for rank, each in launches.items()
    }


def _both(
    cause: Cause,
    events: dict[int, Event],
    names: tuple[str | None, str | None] = (None, None),
) -> Iterator[Violation]:
    """Yield the finding of each of two ranks; the text of the cause ends the summary."""
    summary = f"ranks {[*events]} met in one collective and disagree{cause.text}"
    evidence = Disagreement(named=cause.lines, events=tuple(events.values()))
    for rank, name in zip(events, names, strict=True):
        yield finding(cause.kind, summary, rank, name, evidence)
