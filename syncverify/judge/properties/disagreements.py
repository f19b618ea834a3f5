"""The reason why ranks that meet in one collective disagree on it, and the rank that is wrong.

Note [Why ranks disagree]
    Sizes that differ are a symptom. Three reasons are reported where they are proven:

    - No axis reduces any of the gradients over these ranks: the group is wrong.
    - Without those gradients that no axis reduces over these ranks, the ranks agree: gradients
      of several groups lie in one bucket, and local parts of some differ in size.
    - A gradient is alone on one rank, whose collective has no room for more, and beside
      another one on the other rank: parameters are divided into buckets in several ways.

    Whatever else differs is a mismatch, with the rank that skipped a collective, or has one too
    many, if it is known.

Note [Skipped, or one too many]
    A rank issues X where its peers issue Y. It has skipped Y, or X is one too many. The first of
    these that tells decides:

    1. Steps and phases: X is one too many if it belongs to an earlier place than Y; Y was
       skipped if X belongs to a later one.
    2. The collectives that follow: ranks agree again without X, or without Y.
    3. The collectives before, in which ranks agree: X repeats the last one, which Y followed, and
       never came right after Y; or X came after Y alone.
    4. Lines of one function, where X is new: X is above Y; or X and Y are below the last one, and X
       is below Y.

    Otherwise it is one of both: a loop that runs once more looks like a line that was skipped.
    Of two ranks alone, the one that leaves the order before it is named, or else the one that has
    one more.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Cause
from syncverify.scenario.layout import contributing_ranks
from syncverify.trace.operations import REDUCING_OPERATIONS
from syncverify.trace.records import CollectiveLaunch, MatchedArguments, ShardGiven
from syncverify.trace.regions import ParameterSlot
from syncverify.trace.run import Run, Trace
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.source_lines import Origin, lines_among

_PHASES = ("bind", "backward", "wait", "zero_grad", "unbind")

Launches = Mapping[int, CollectiveLaunch]  # the launch of a collective on each rank
Rows = Mapping[int, Sequence[CollectiveLaunch]]
_Identity = tuple[tuple[Origin, ...], tuple[str, ...], MatchedArguments]
_Place = tuple[int, int, int]


def why(judgement: Judgement, launches: Launches, pair: tuple[int, int]) -> Cause:
    """Return why two ranks of a collective disagree; the text of the cause ends the summary."""
    two = {rank: launches[rank] for rank in pair}
    dtypes = [getattr(torch, launch.dtype, None) for launch in two.values()]
    if not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
        # A barrier has no dtype: nothing is sent.
        return skipped_by(judgement.run, launches)
    # The gradients that each rank sends; none of any rank if some value is unknown.
    sent = {rank: judgement.sent(rank, two[rank]).names for rank in two}
    if not judgement.run.carries_data or None in sent.values():
        sent = dict.fromkeys(two, ())
    foreign = {r: _foreign(judgement, r, two[r], sent[r] or ()) for r in sent}
    outside = {name for names in foreign.values() for name in names}
    axes_outside = f"{', '.join(sorted(outside))} over these ranks"
    if outside and foreign == sent:
        name, rank = min(outside), pair[0]
        (ranks, *_) = _contributors(judgement, rank, name)
        right = f"rank {rank} has to reduce {name} over ranks {list(ranks)}"
        if len(ranks) == 1:
            right = f"the gradient of {name} on rank {rank} stays its own"
        text = f": no axis reduces {axes_outside}; {right}"
        return Cause("foreign_contribution", text)
    if outside and _agree_without(judgement, two, foreign):
        inside = {name for names in sent.values() for name in names or ()} - outside
        bucket = f"the bucket of {', '.join(sorted(inside))}"
        text = f": {bucket} holds gradients of other groups: no axis reduces {axes_outside}"
        return Cause("groups_mixed", text)
    if beside := next(_beside(judgement, two), ""):
        return Cause("buckets_differ", beside)
    return skipped_by(judgement.run, launches)


def _foreign(
    judgement: Judgement, rank: int, launch: CollectiveLaunch, names: Sequence[str]
) -> tuple[str, ...]:
    """Name those gradients that must not be reduced over all ranks of a launch."""
    return tuple(
        name
        for name in names
        for contributors in _contributors(judgement, rank, name)
        if not {*launch.ranks} <= {*contributors}
    )


def _contributors(judgement: Judgement, rank: int, name: str) -> list[tuple[int, ...]]:
    """Return the ranks over which a rank has to reduce a gradient; none if it is unknown."""
    mesh, parameters = judgement.scenario.mesh, judgement.scenario.parameters
    return [contributing_ranks(mesh, e, rank) for e in parameters if e.name == name]


def _agree_without(
    judgement: Judgement, two: Launches, foreign: dict[int, tuple[str, ...]]
) -> bool:
    """Tell whether ranks would agree if they left some gradients out."""
    rest = set[MatchedArguments]()
    for rank, launch in two.items():
        if launch.operation not in REDUCING_OPERATIONS:
            return False
        numel = launch.numel - sum(judgement.numel(n, rank) for n in foreign[rank])
        rest.add(replace(launch, numel=numel).matched_arguments)
    return len(rest) == 1 and next(iter(rest)).numel != 0


def _beside(judgement: Judgement, two: Launches) -> Iterator[str]:
    """Yield, in words, each gradient that is beside another one on one rank only."""
    slots = {rank: judgement.sent(rank, two[rank]).slots for rank in two}
    for rank, peer in itertools.permutations(two):
        is_reduction = two[rank].operation in REDUCING_OPERATIONS
        if not is_reduction or not _is_full(two[peer], slots[peer]):
            continue
        names = {slot.parameter for slot in slots[peer]}
        common = [slot for slot in slots[rank] if slot.parameter in names]
        for slot in slots[rank] if common else ():
            is_moved = any(share_bytes(slot, each) for each in common)
            is_more = slot.parameter not in names and not is_moved
            if is_more and judgement.numel(slot.parameter, peer):
                beside = f"in one bucket with {common[0].parameter} on rank {rank}"
                yield f": {slot.parameter} is {beside}, and not on rank {peer}"


def _is_full(launch: CollectiveLaunch, slots: Sequence[ParameterSlot]) -> bool:
    """Tell whether the slots leave no room for another gradient."""
    reached = 0
    for slot in sorted(slots, key=lambda each: each.offset_bytes):
        if slot.offset_bytes > reached:
            return False
        reached = max(reached, slot.end_byte)
    return bool(reached >= launch.numel * getattr(torch, launch.dtype).itemsize)


def share_bytes(one: ParameterSlot, other: ParameterSlot) -> bool:
    """Tell whether two slots meet in a buffer."""
    return one.offset_bytes < other.end_byte and other.offset_bytes < one.end_byte


def skipped_by(run: Run, launches: Launches) -> Cause:
    """Return a mismatch, with the rank that leaves the order of its peers if it is known."""
    if uneven := _uneven(run, launches):
        return uneven
    key = next(iter(launches.values())).key[:2]
    issued = {rank: launches_of(run.ranks[rank].trace) for rank in launches}
    rows = {rank: [e for e in own if e.key[:2] == key] for rank, own in issued.items()}
    found = odd_rank(launches, rows)
    if found is None:
        return Cause("collective_mismatch", "")
    words = {"skipped ": found.skipped, "has one more: ": found.extra}
    known = {verb: replace(e, source=own_line(e)) for verb, e in words.items() if e}
    text = ", or ".join(f"{verb}{launch}" for verb, launch in known.items())
    lines = tuple(launch.source for launch in known.values())
    return Cause("collective_mismatch", f": rank {found.rank} {text}", lines=lines)


def _uneven(run: Run, launches: Launches) -> Cause | None:
    """Return the cause of ranks that exchange shards of other sizes, given at one line."""
    given = {r: _shard_behind(run.ranks[r].trace, e) for r, e in launches.items()}
    shards = {rank: shard for rank, shard in given.items() if shard is not None}
    lines = lines_among({shard.source for shard in shards.values()})
    if len(shards) < len(given) or len(lines) != 1:
        return None
    sizes = (f"{list(each.shape)} on rank {rank}" for rank, each in shards.items())
    text = f": from_local at {lines[0]} gets shards of other sizes: {', '.join(sizes)}"
    return Cause("uneven_shards", text, lines=lines)


def _shard_behind(trace: Trace, launch: CollectiveLaunch) -> ShardGiven | None:
    """Return the last shard that a collective of DTensor may exchange; None for any other one."""
    exchanged = launch.ranks, launch.numel
    before = trace[: trace.index(launch)] if launch.is_functional else ()
    shards = (each for each in reversed(before) if type(each) is ShardGiven)
    fitting = (e for e in shards if (e.ranks, math.prod(e.shape)) == exchanged)
    return next(fitting, None)


class Odd(NamedTuple):
    """A rank that leaves the order of its peers."""

    rank: int
    skipped: CollectiveLaunch | None  # a peer's, which the rank may have skipped
    extra: CollectiveLaunch | None  # own one that may be one too many


def odd_rank(launches: Launches, rows: Rows) -> Odd | None:
    """Return the rank that leaves the order of its peers.

    `rows` has all launches of the ranks on the communicator, in the order of each rank. None where
    each of two ranks may be the one that is wrong.
    """
    ranks = dict[object, list[int]]()
    for rank, launch in launches.items():
        ranks.setdefault(_identity(launch), []).append(rank)
    usual, *rest = sorted(ranks.values(), key=len, reverse=True)
    agreed = launches[usual[0]].matched_arguments
    others = [each for each in rest if launches[each[0]].matched_arguments != agreed]
    if not others:
        return None
    one, other = usual[0], others[0][0]
    if len(usual) > len(others[0]):  # two of three ranks are right
        return _judged(_met(other, one, launches, rows))
    sides = _met(one, other, launches, rows), _met(other, one, launches, rows)
    signs = itertools.product((_is_odd, _by_next), sides)
    return next((_judged(side) for is_found, side in signs if is_found(side)), None)


def own_line(launch: CollectiveLaunch) -> Origin:
    """Return the line of a launch that a user can mend: none of torch's, where it is known."""
    lines = lines_among((launch.source, *launch.callers))
    return next((e for e in lines if not is_torch_line(e.file)), launch.source)


class _Side(NamedTuple):
    """What a rank and a peer issue: X and Y, then from there on, and what both issued before."""

    rank: int
    issued: CollectiveLaunch
    due: CollectiveLaunch
    own: Sequence[_Identity]
    theirs: Sequence[_Identity]
    before: Sequence[_Identity]


def _met(rank: int, peer: int, launches: Launches, rows: Rows) -> _Side:
    own, theirs, before = list[_Identity](), list[_Identity](), list[_Identity]()
    due = launches[peer]
    for each in rows[peer]:
        (theirs if each.sequence >= due.sequence else before).append(_identity(each))
    own = [_identity(e) for e in rows[rank] if e.sequence >= due.sequence]
    return _Side(rank, launches[rank], due, own, theirs, before)


def _is_odd(side: _Side) -> bool:
    """Tell whether the places or the agreed order have Y where the rank issues X."""
    issued, due = _place(side.issued), _place(side.due)
    if issued != due:
        return due < issued
    x, y, before = side.own[0], side.theirs[0], side.before
    is_past, is_ahead = _comes_before(y, x, before), _comes_before(x, y, before)
    if is_past == is_ahead:  # a loop, or X is new
        pairs = {*itertools.pairwise([None, *before])}
        last = before[-1] if before else None
        return (last, y) in pairs and (last, x) not in pairs
    return is_past


def _comes_before(one: _Identity, other: _Identity, order: Sequence[_Identity]) -> bool:
    return one in order and other in order[order.index(one) :]


def _judged(side: _Side) -> Odd:
    """Tell whether the rank skipped Y, or X is one too many: `Note [Skipped, or one too many]`."""
    is_extra = next((sign for sign in _signs(side) if sign is not None), None)
    skipped = None if is_extra is True else side.due
    return Odd(side.rank, skipped, None if is_extra is False else side.issued)


def _signs(side: _Side) -> Iterator[bool | None]:
    """Yield what each sign tells: True if X is one too many, False if Y was skipped."""
    issued, due = _place(side.issued), _place(side.due)
    yield None if issued == due else issued < due
    yield _by_next(side)
    x, y, before = side.own[0], side.theirs[0], side.before
    pairs, last = {*itertools.pairwise(before)}, before[-1:]
    if [x] == last and (y, x) not in pairs and (x, y) in pairs:
        yield True
    if [x] != last and (y, x) in pairs and (*last, x) not in pairs:
        yield False
    heads = (x, y, *last)
    lines = lines_among(identity[0][-1] for identity in heads)
    functions = {line._replace(number=0) for line in lines}
    if x not in before and len(lines) == len(heads) and len(functions) == 1:
        own, theirs, *met = (line.number for line in lines)
        if own < theirs:
            yield True
        if own > theirs and all(number < theirs for number in met):
            yield False


def _by_next(side: _Side) -> bool | None:
    without_x = _agree(side.own[1:], side.theirs)
    return without_x if without_x != _agree(side.own, side.theirs[1:]) else None


def _agree(one: Sequence[_Identity], other: Sequence[_Identity]) -> bool:
    return bool(one and other) and all(a == b for a, b in zip(one, other, strict=False))


def _identity(launch: CollectiveLaunch) -> _Identity:
    lines = tuple(dict.fromkeys((launch.source, own_line(launch))))
    return lines, launch.parameters, launch.matched_arguments


def _place(launch: CollectiveLaunch) -> _Place:
    moment = launch.moment
    phase = _PHASES.index(moment.phase) if moment.phase in _PHASES else len(_PHASES)
    return moment.step, phase, moment.micro_batch or 0
