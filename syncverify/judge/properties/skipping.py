"""The rank that leaves the order of its peers, where they meet in different collectives.

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

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from syncverify.trace.records import CollectiveLaunch, MatchedArguments
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.source_lines import Origin, lines_among

_PHASES = ("bind", "backward", "wait", "zero_grad", "unbind")

Rows = Mapping[int, Sequence[CollectiveLaunch]]
_Identity = tuple[tuple[Origin, ...], tuple[str, ...], MatchedArguments]
_Place = tuple[int, int, int]


class Odd(NamedTuple):
    """A rank that leaves the order of its peers.

    Attributes:
        rank: The rank.
        skipped: Collective of a peer that the rank may have skipped.
        extra: Collective of the rank that may be one too many.
    """

    rank: int
    skipped: CollectiveLaunch | None
    extra: CollectiveLaunch | None


def odd_rank(launches: Mapping[int, CollectiveLaunch], rows: Rows) -> Odd | None:
    """Return the rank that leaves the order of its peers.

    Args:
        launches: The launch of each rank that came to the meeting, by rank.
        rows: All launches of these ranks on the communicator, in the order of each rank.

    Returns:
        None where each of two ranks may be the one that is wrong.
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

    @property
    def places(self) -> tuple[_Place, _Place]:
        """Return the places of X and Y."""
        return _place(self.issued), _place(self.due)


def _met(
    rank: int, peer: int, launches: Mapping[int, CollectiveLaunch], rows: Rows
) -> _Side:
    issued, due = launches[rank], launches[peer]
    own, theirs, before = (
        [_identity(each) for each in row if (each.sequence >= due.sequence) == is_later]
        for row, is_later in (
            (rows[rank], True),
            (rows[peer], True),
            (rows[peer], False),
        )
    )
    return _Side(rank, issued, due, own, theirs, before)


def _is_odd(side: _Side) -> bool:
    """Tell whether the places or the agreed order have Y where the rank issues X."""
    issued, due = side.places
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
    signs = (find(side) for find in (_by_place, _by_next, _by_order, _by_line))
    is_extra = next((sign for sign in signs if sign is not None), None)
    return Odd(
        side.rank,
        None if is_extra is True else side.due,
        None if is_extra is False else side.issued,
    )


def _by_place(side: _Side) -> bool | None:
    issued, due = side.places
    return None if issued == due else issued < due


def _by_next(side: _Side) -> bool | None:
    without_x = _agree(side.own[1:], side.theirs)
    return without_x if without_x != _agree(side.own, side.theirs[1:]) else None


def _agree(one: Sequence[_Identity], other: Sequence[_Identity]) -> bool:
    return bool(one and other) and all(a == b for a, b in zip(one, other, strict=False))


def _by_order(side: _Side) -> bool | None:
    x, y, before = side.own[0], side.theirs[0], side.before
    pairs, last = {*itertools.pairwise(before)}, before[-1:]
    if [x] == last:
        return True if (y, x) not in pairs and (x, y) in pairs else None
    return False if (y, x) in pairs and (*last, x) not in pairs else None


def _by_line(side: _Side) -> bool | None:
    heads = (side.own[0], side.theirs[0], *side.before[-1:])
    lines = lines_among(identity[0][-1] for identity in heads)
    functions = {line._replace(number=0) for line in lines}
    if side.own[0] in side.before or len(lines) < len(heads) or len(functions) > 1:
        return None
    x, y, *last = (line.number for line in lines)
    if x < y:
        return True
    return False if x > y and all(line < y for line in last) else None


def _identity(launch: CollectiveLaunch) -> _Identity:
    lines = tuple(dict.fromkeys((launch.source, own_line(launch))))
    return lines, launch.parameters, launch.matched_arguments


def _place(launch: CollectiveLaunch) -> _Place:
    moment = launch.moment
    phase = _PHASES.index(moment.phase) if moment.phase in _PHASES else len(_PHASES)
    return moment.step, phase, moment.micro_batch or 0
