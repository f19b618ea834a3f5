"""Copies of one value that differ between ranks."""

from __future__ import annotations

import torch

from syncverify.whole_step.causes import RanksDiffer, StepMistake, Unexplained
from syncverify.whole_step.differences import ComparedValue
from syncverify.whole_step.factors import axis_sets
from syncverify.whole_step.layout import Layout


def copy_cause(found: ComparedValue, layout: Layout) -> StepMistake:
    """Return how the copies of a wrong value differ."""
    off = {rank: _off(found, rank) for rank in found.got}
    if all(_is_near(off[rank], off[other], found) for rank in off for other in off):
        return Unexplained()
    return RanksDiffer(tuple(found.wrong_ranks), _axes(off, found, layout))


def _axes(
    off: dict[int, torch.Tensor | None], found: ComparedValue, layout: Layout
) -> frozenset[str]:
    """Return the fewest axes over which copies differ; none where all axes do."""
    for axes in axis_sets(layout):
        others = {*layout.names} - axes
        if all(
            _is_near(off[rank], off[other], found)
            for rank in off
            for other in layout.group(rank, others)
            if other in off
        ):
            return axes
    return frozenset()


def _off(found: ComparedValue, rank: int) -> torch.Tensor | None:
    value, expected = found.got[rank], found.expected[rank]
    if value is None or value.shape != expected.shape:
        return None
    return value.double() - expected.double()


def _is_near(
    one: torch.Tensor | None, two: torch.Tensor | None, found: ComparedValue
) -> bool:
    if one is None or two is None:
        return one is two
    if one.shape != two.shape:
        return False
    near = torch.allclose(one, two, rtol=0.0, atol=found.tolerance, equal_nan=True)
    return near
