"""Copies of one value that differ between ranks: they are wrong, or right within rounding.

Note [Copies are equal to the bit]

Ranks that hold one parameter make the same update of it, or receive it. An all-reduce gives each rank
the same bits: a ring or a tree reduces each element in one place and sends the result, in NCCL as in
gloo. So a difference in the last bits has a reason in the program, such as an owner that keeps the value
from before a cast, or ranks that add in different orders. Nothing removes it, and copies drift apart.

Compared are parameters before the first step and after each, and gradients that the optimizer
reads. Gradients before they are reduced, and buffers, may differ. So may a gradient that the optimizer
may not read, or whose update the step replaces (`unread.py`). Two ranks have copies if the same part of
one rank's tensor is right for both: coincidences of values do not count. Zeros of both signs are equal.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from typing import Final

import torch

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.differences import ComparedValue, is_close
from syncverify.judge.whole_step.factors import axis_sets
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.values import Quantity, RankValues

_COPIED: Final = (Quantity.START, Quantity.STEPPED, Quantity.PARAMETER)


def copy_cause(found: ComparedValue, layout: Layout) -> causes.StepMistake:
    """Return how the copies of a wrong value differ."""
    pairs = {p for p in combinations(sorted(found.got), 2) if not _is_near(found, *p)}
    if not pairs:
        return causes.Unexplained()
    copies = {pair for pair in pairs if _are_copies(found, *pair)}
    axes = fewest_axes(copies or pairs, layout)
    if not copies:
        return causes.Unexplained(axes)
    return causes.RanksDiffer(tuple(found.wrong_ranks), axes)


def _are_copies(found: ComparedValue, rank: int, other: int) -> bool:
    """Tell whether two ranks should have one value: shards may be equal where both are zero."""
    ours, theirs = found.expected[rank], found.expected[other]
    is_one = ours.data_ptr() == theirs.data_ptr()
    return torch.equal(ours, theirs) and (is_one or bool(ours.any()))


def fewest_axes(pairs: set[tuple[int, int]], layout: Layout) -> frozenset[str]:
    """Return the fewest axes such that both ranks of each pair are apart on one of them."""

    def are_apart(axes: frozenset[str]) -> bool:
        others = {*layout.names} - axes
        return not any(other in layout.group(rank, others) for rank, other in pairs)

    return next(axes for axes in axis_sets(layout) if are_apart(axes))


def _is_near(found: ComparedValue, *ranks: int) -> bool:
    """Tell whether two ranks are off by the same, or both have no value of the right shape."""
    off = [
        value.double() - found.expected[rank].double()
        for rank in ranks
        if (value := found.got[rank]) is not None
        and value.shape == found.expected[rank].shape
    ]
    return not off or (len(off) == 2 and is_close(off[0], off[1], found.tolerance))


def copies_apart(
    values: Iterable[ComparedValue], ranks: Sequence[RankValues], layout: Layout
) -> list[causes.WrongQuantity]:
    """Return the first copies that differ, as one mistake; none where all are equal.

    All values are right, and in the order of the steps.
    """
    found = list[causes.WrongQuantity]()
    listed = (each for each in values if _is_copied(each, ranks))
    for (step, quantity), group in groupby(listed, lambda e: (e.step, e.quantity)):
        every = [*group]
        apart = [each for value in every for each in _apart(value)]
        if apart:
            pairs = {(min(e.got), rank) for e in apart for rank in e.wrong_ranks}
            own = tuple(sorted({rank for each in apart for rank in each.got}))
            cause = causes.CopiesRoundedApart(own, fewest_axes(pairs, layout))
            total, off = len(every), tuple(apart)
            found.append(causes.WrongQuantity(quantity, step, cause, off, total))
    follows = {each.quantity for each in found[1:]} - {e.quantity for e in found[:1]}
    ordered = tuple(each for each in Quantity if each in follows)
    return [replace(each, follows=ordered) for each in found[:1]]


def _is_copied(value: ComparedValue, ranks: Sequence[RankValues]) -> bool:
    if value.quantity is not Quantity.STEPPED:
        return value.quantity in _COPIED
    name, steps = value.name, (ranks[rank].steps[value.step] for rank in value.got)
    return not any(name in e.read_elsewhere or name in e.left for e in steps)


def _apart(value: ComparedValue) -> Iterator[ComparedValue]:
    """Yield a value beside the first copy, for each part with copies that differ."""
    by_part = dict[tuple[int, torch.Size], list[int]]()
    for rank, expected in value.expected.items():
        if expected.numel():
            by_part.setdefault((expected.data_ptr(), expected.shape), []).append(rank)
    for ranks in by_part.values():
        got = {rank: value.got[rank] for rank in ranks}
        if (first := got[ranks[0]]) is not None:
            right = dict.fromkeys(ranks, first)
            beside = replace(value, got=got, expected=right, tolerance=0.0)
            if beside.wrong_ranks:
                yield beside
