"""The reason why ranks that meet in one collective disagree on it.

Note [Why ranks disagree]
    Sizes that differ are a symptom. Three reasons are reported where they are proven:

    - No axis reduces any of the gradients over these ranks: the group is wrong.
    - Without those gradients that no axis reduces over these ranks, the ranks agree: gradients
      of several groups lie in one bucket, and local parts of some differ in size.
    - A gradient is alone on one rank, whose collective has no room for more, and beside
      another one on the other rank: parameters are divided into buckets in several ways.

    Whatever else differs is a mismatch, with the rank that skipped a collective, or has one too
    many, if it is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from syncverify.judge.cause import Cause
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.sent import senders, true_slots
from syncverify.judge.properties.skipping import Odd, odd_rank, own_line
from syncverify.judge.traced import launches_of
from syncverify.scenario.layout import contributing_ranks, local_shape
from syncverify.scenario.specs import ParameterSpec
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import CollectiveLaunch, MatchedArguments
from syncverify.trace.run import Run
from syncverify.trace.slots import ParameterSlot

Launches = dict[int, CollectiveLaunch]


def why(judgement: Judgement, launches: Launches, pair: tuple[int, int]) -> Cause:
    """Return the cause of a disagreement of two ranks; its text ends the summary.

    Args:
        judgement: The run.
        launches: All launches of the collective, by rank.
        pair: Two ranks whose launches differ.
    """
    two = {rank: launches[rank] for rank in pair}
    if not all(isinstance(each, torch.dtype) for each in _dtypes(two)):
        # A barrier has no dtype: nothing is sent.
        return skipped_by(judgement.run, launches)
    sent = _sent(judgement, two)
    foreign = {rank: _foreign(judgement, rank, two[rank], sent[rank]) for rank in sent}
    outside = {name for names in foreign.values() for name in names}
    axes_outside = f"{', '.join(sorted(outside))} over these ranks"
    if outside and foreign == sent:
        right = _right_group(judgement, min(outside), pair[0])
        return Cause(
            "foreign_contribution", f": no axis reduces {axes_outside}; {right}"
        )
    if outside and _agree_without(judgement, two, foreign):
        inside = sorted({name for names in sent.values() for name in names} - outside)
        bucket = f"the bucket of {', '.join(inside)} holds gradients of other groups"
        return Cause("groups_mixed", f": {bucket}: no axis reduces {axes_outside}")
    beside = next(_beside(judgement, two), "")
    if beside:
        return Cause("buckets_differ", beside)
    return skipped_by(judgement.run, launches)


def _right_group(judgement: Judgement, name: str, rank: int) -> str:
    """Name the ranks over which a rank has to reduce the gradient of a parameter."""
    scenario = judgement.scenario
    spec = next(each for each in scenario.parameters if each.name == name)
    ranks = contributing_ranks(scenario.mesh, spec, rank)
    if len(ranks) == 1:
        return f"the gradient of {name} on rank {rank} stays its own"
    return f"rank {rank} has to reduce {name} over ranks {list(ranks)}"


def _dtypes(two: Launches) -> list[object]:
    """Return torch's dtypes of launches; None where torch has no such name."""
    return [getattr(torch, launch.dtype, None) for launch in two.values()]


def _sent(judgement: Judgement, two: Launches) -> dict[int, tuple[str, ...]]:
    """Name the gradients that each rank sends; none of any rank if some value is unknown."""
    found = {rank: senders(judgement.reference, rank, two[rank]) for rank in two}
    if not judgement.run.carries_data or None in found.values():
        return dict.fromkeys(two, ())
    return {rank: names or () for rank, names in found.items()}


def _foreign(
    judgement: Judgement, rank: int, launch: CollectiveLaunch, names: Sequence[str]
) -> tuple[str, ...]:
    """Name those gradients that must not be reduced over all ranks of a launch."""
    mesh = judgement.scenario.mesh
    return tuple(
        name
        for name in names
        for spec in _specs(judgement, name)
        if not {*launch.ranks} <= {*contributing_ranks(mesh, spec, rank)}
    )


def _agree_without(
    judgement: Judgement, two: Launches, foreign: dict[int, tuple[str, ...]]
) -> bool:
    """Tell whether ranks would agree if they left some gradients out."""
    rest = set[MatchedArguments]()
    for rank, launch in two.items():
        if launch.operation not in REDUCING_OPERATIONS:
            return False
        numel = launch.numel - sum(_numel(judgement, rank, n) for n in foreign[rank])
        rest.add(replace(launch, numel=numel).matched_arguments)
    return len(rest) == 1 and next(iter(rest)).numel != 0


def _beside(judgement: Judgement, two: Launches) -> Iterator[str]:
    """Yield, in words, each gradient that is beside another one on one rank only."""
    slots = {rank: true_slots(judgement.reference, rank, two[rank]) for rank in two}
    for (rank, own), (peer, theirs) in (
        [*slots.items()],
        [*reversed(slots.items())],
    ):
        if two[rank].operation not in REDUCING_OPERATIONS or not _is_full(
            two[peer], theirs
        ):
            continue
        names = {slot.parameter for slot in theirs}
        common = [slot for slot in own if slot.parameter in names]
        for slot in own:
            more = slot.parameter not in names and not _shares_bytes(slot, common)
            if common and more and _numel(judgement, peer, slot.parameter):
                yield (
                    f": {slot.parameter} is in one bucket with {common[0].parameter} on rank "
                    f"{rank}, and not on rank {peer}"
                )


def _is_full(launch: CollectiveLaunch, slots: Sequence[ParameterSlot]) -> bool:
    """Tell whether the slots leave no room for another gradient."""
    reached = 0
    for slot in sorted(slots, key=lambda each: each.offset_bytes):
        if slot.offset_bytes > reached:
            return False
        reached = max(reached, slot.end_byte)
    return bool(reached >= launch.numel * getattr(torch, launch.dtype).itemsize)


def _shares_bytes(slot: ParameterSlot, others: Sequence[ParameterSlot]) -> bool:
    return any(
        slot.offset_bytes < other.end_byte and other.offset_bytes < slot.end_byte
        for other in others
    )


def skipped_by(run: Run, launches: Launches) -> Cause:
    """Return a mismatch, with the rank that leaves the order of its peers if it is known."""
    key = next(iter(launches.values())).key[:2]
    rows = {
        rank: [e for e in launches_of(run.ranks[rank].trace) if e.key[:2] == key]
        for rank in launches
    }
    found = odd_rank(launches, rows)
    if found is None:
        return Cause("collective_mismatch", "")
    text = ", or ".join(_odd_words(found))
    lines = (own_line(each) for each in (found.skipped, found.extra) if each)
    return Cause(
        "collective_mismatch", f": rank {found.rank} {text}", lines=tuple(lines)
    )


def _odd_words(odd: Odd) -> Iterator[str]:
    if odd.skipped:
        yield f"skipped {replace(odd.skipped, source=own_line(odd.skipped))}"
    if odd.extra:
        yield f"has one more: {replace(odd.extra, source=own_line(odd.extra))}"


def _numel(judgement: Judgement, rank: int, name: str) -> int:
    """Count the elements of a trainable parameter on a rank."""
    mesh = judgement.scenario.mesh
    return sum(
        math.prod(local_shape(mesh, spec, rank))
        for spec in _specs(judgement, name)
        if spec.requires_grad
    )


def _specs(judgement: Judgement, name: str) -> list[ParameterSpec]:
    return [spec for spec in judgement.scenario.parameters if spec.name == name]
