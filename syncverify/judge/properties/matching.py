"""The property of ranks that meet in a collective: they agree on it, and on their groups.

Note [Names of groups]
    torch has every rank of the world call `new_group` for each group, members or not, in one
    order. It waits for nobody there, unless TORCH_DIST_INIT_BARRIER=1: it names a group by the
    number of the rank's call, and members meet in the store under that name. Where ranks
    differ in the n-th call, two groups have one name, or one group has two names: ranks wait
    for ever, or connect to ranks of another group. With `use_local_synchronization=True` the
    name comes from the ranks, and members alone call.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from syncverify.judge.evidence import Disagreement, Event, Parting, ended
from syncverify.judge.properties.circumstances import skips
from syncverify.judge.properties.disagreements import (
    Launches,
    share_bytes,
    skipped_by,
    why,
)
from syncverify.judge.properties.judgement import Judgement, Property
from syncverify.judge.properties.launch_order import matched, parting
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Cause, Violation, finding
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import CollectiveKey, CollectiveLaunch, GroupMade
from syncverify.trace.regions import ParameterSlot
from syncverify.trace.run import Run

# These use the same bytes of all ranks' buffers. In other operations, such as an
# all-gather, each rank may contribute different parameters.
_COMBINING = REDUCING_OPERATIONS | {"broadcast"}
_RULE = "torch names a group by the number of the call, so every rank makes each group"

_Matched = Mapping[CollectiveKey, Launches]
Reason = Callable[[Launches, tuple[int, int]], Cause]  # why two of the ranks disagree


@Property(
    in_any_program=lambda traced: mismatches(
        traced.run, lambda met, _two: skipped_by(traced.run, met)
    ),
    order=30,
    condition="A rank issues a collective over two ranks or more, or a message.",
    applies=lambda seen: any(len(e.ranks) > 1 for e in launches_of(seen.records)),
    example="two buckets of equal size, swapped on one rank",
    needs_data=False,
    leads_to=("launch_order_agrees", "every_rank_finishes", "every_wait_completes"),
)
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
            found = replace(found, clues=clues)
        yield found
    for launches in _matched_launches(judgement.run).values():
        yield from _mixed_up(judgement, launches)


def mismatches(run: Run, reason: Reason) -> Iterator[Violation]:
    """Find collectives on which ranks do not agree, in the traces of any program."""
    launches, fault = _matched_launches(run), run.fault
    found = [
        *groups_that_differ(run),
        *_disagreements(run, launches, reason),
        *_absences(run, launches),
    ]
    yield from found
    # The backend sees sizes that the trace does not have.
    if fault and fault.kind == "collective_mismatch" and not found:
        for rank in fault.ranks:
            yield finding(fault.kind, fault.summary, rank, None, ended(fault))


def _matched_launches(run: Run) -> _Matched:
    return matched({rank: launches_of(e.trace) for rank, e in enumerate(run.ranks)})


def _disagreements(run: Run, listed: _Matched, reason: Reason) -> Iterator[Violation]:
    """Find the first collective of each communicator in which ranks disagree.

    Later collectives of that communicator are out of step and tell nothing new.
    """
    seen = set[tuple[str, tuple[int, ...]]]()
    for key, launches in listed.items():
        (one, launch), *others = launches.items()
        for other, theirs in others:
            differs = theirs.matched_arguments != launch.matched_arguments
            if differs and key[:2] not in seen:
                seen.add(key[:2])
                cause, parted = reason(launches, (one, other)), parting(run, key)
                yield from _both(cause, {one: launch, other: theirs}, parted=parted)


def _absences(run: Run, listed: _Matched) -> Iterator[Violation]:
    """Find ranks that issue fewer collectives than their peers, though the run ended."""
    if run.fault is not None:  # ranks may not have reached their launches
        return
    played = {rank for rank, own in enumerate(run.ranks) if own.trace}
    for (_, ranks, _), launches in listed.items():
        for rank in sorted((played & {*ranks}) - launches.keys()):
            peer, launch = next(iter(launches.items()))
            summary = f"rank {rank} never issues a collective of rank {peer}: {launch}"
            events = (Event(f"rank {peer}: {launch}, in {launch.moment}", launch),)
            evidence = Disagreement(events=events, parting=parting(run, launch.key))
            yield finding("collective_missing", summary, rank, None, evidence)


def _mixed_up(judgement: Judgement, launches: Launches) -> Iterator[Violation]:
    named = {r: e for r, e in launches.items() if e.operation in _COMBINING and e.slots}
    for (one, launch), (other, theirs) in itertools.pairwise(named.items()):
        ranks = one, other
        # Values are read only where slots conflict: reading them is the slowest part.
        if not any(_conflicts(judgement, ranks, launch.slots, theirs.slots)):
            continue
        known = (judgement.sent(rank, launches[rank]).slots for rank in ranks)
        for slot, their_slot in _conflicts(judgement, ranks, *known):
            meeting = f"{slot} on rank {one} meets {their_slot} on rank {other}"
            cause = Cause("bucket_mismatch", f": {meeting} ({launch.moment})")
            names = slot.parameter, their_slot.parameter
            yield from _both(cause, {one: launch, other: theirs}, names)


def _conflicts(
    judgement: Judgement,
    ranks: tuple[int, int],
    slots: Sequence[ParameterSlot],
    theirs: Sequence[ParameterSlot],
) -> Iterator[tuple[ParameterSlot, ParameterSlot]]:
    """Yield pairs of slots of two ranks that exclude each other."""
    rank, peer = ranks
    common = {s.parameter for s in slots} & {s.parameter for s in theirs}
    # A contribution may hold a gradient twice.
    places = {(other.parameter, other.offset_bytes) for other in theirs}
    for pair in itertools.product(slots, theirs) if slots != theirs else ():
        one, other = (slot.parameter for slot in pair)
        if one == other:
            if (one, pair[0].offset_bytes) not in places:
                yield pair
        # A rank may be without bytes of a parameter.
        elif (
            share_bytes(*pair)
            and not common & {one, other}
            and (judgement.numel(one, peer) or judgement.numel(other, rank))
        ):
            yield pair


def _both(
    cause: Cause,
    launches: Mapping[int, CollectiveLaunch],
    names: tuple[str | None, str | None] = (None, None),
    parted: Parting | None = None,
) -> Iterator[Violation]:
    """Yield the finding of each of two ranks; the text of the cause ends the summary."""
    summary = f"ranks {[*launches]} met in one collective and disagree{cause.text}"
    evidence = replace(_evidence(launches), named=cause.lines, parting=parted)
    for rank, name in zip(launches, names, strict=True):
        yield finding(cause.kind, summary, rank, name, evidence)


def _evidence(calls: Mapping[int, CollectiveLaunch | GroupMade]) -> Disagreement:
    events = (Event(f"rank {rank}: {each}", each) for rank, each in calls.items())
    return Disagreement(events=tuple(events))


def groups_that_differ(run: Run) -> Iterator[Violation]:
    """Find the first group that two ranks do not make alike; later names are out of step."""
    made = [[e for e in own.trace if type(e) is GroupMade] for own in run.ranks]
    for number in range(max(map(len, made), default=0)):
        calls = {r: own[number] for r, own in enumerate(made) if number < len(own)}
        (one, first), *_ = calls.items()
        other = next((r for r in calls if calls[r].ranks != first.ranks), None)
        if other is not None:
            pair, call = {one: first, other: calls[other]}, f"call {number + 1}"
            groups = f"different groups by {call} of new_group()"
            summary = f"ranks {[*pair]} make {groups}: {_RULE}"
            for rank in pair:
                yield finding("groups_differ", summary, rank, None, _evidence(pair))
            return
        if run.fault is None and len(calls) < len(made):
            missing = next(r for r in range(len(made)) if r not in calls)
            summary = (
                f"rank {missing} makes fewer groups than rank {one}: it lacks call "
                f"{number + 1} of new_group(); {_RULE}"
            )
            evidence = _evidence({one: first})
            yield finding("groups_differ", summary, missing, None, evidence)
            return
