"""Copies of one value that differ between ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from syncverify.judge.whole_step.causes import RanksDiffer, StepMistake, Unexplained
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import axis_sets
from syncverify.judge.whole_step.layout import Layout

# By how much the value of each rank is off; None where the rank has no value.
_Off = dict[int, torch.Tensor | None]


def copy_cause(found: ComparedValue, layout: Layout) -> StepMistake:
    """Return how the copies of a wrong value differ."""
    off = {rank: _off(found, rank) for rank in found.got}
    pairs = {pair for pair in _pairs(off) if not _is_near(off, *pair, found)}
    if not pairs:
        return Unexplained()
    copies = {pair for pair in pairs if _are_copies(found, *pair)}
    axes = fewest_axes(copies or pairs, layout)
    return RanksDiffer(tuple(found.wrong_ranks), axes, bool(copies))


def _pairs(off: _Off) -> Iterator[tuple[int, int]]:
    yield from ((rank, other) for rank in off for other in off if rank < other)


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


def _off(found: ComparedValue, rank: int) -> torch.Tensor | None:
    value, expected = found.got[rank], found.expected[rank]
    if value is None or value.shape != expected.shape:
        return None
    return value.double() - expected.double()


def _is_near(off: _Off, rank: int, other: int, found: ComparedValue) -> bool:
    one, two = off[rank], off[other]
    if one is None or two is None:
        return one is two
    if one.shape != two.shape:
        return False
    near = torch.allclose(one, two, rtol=0.0, atol=found.tolerance, equal_nan=True)
    return near
