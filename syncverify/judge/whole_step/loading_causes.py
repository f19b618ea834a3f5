"""The mistake that makes a loaded value wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from syncverify.judge.whole_step.causes import Misplaced, NotLoaded, StepMistake
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import ComparedValue, is_close
from syncverify.judge.whole_step.layout import Layout

Fresh = Mapping[int, torch.Tensor | None]


def loading_cause(
    found: ComparedValue, fresh: Fresh, saved_on: Layout, layout: Layout
) -> StepMistake:
    """Return the mistake behind a wrong value after loading.

    One layout wrote the checkpoint, another one read it. Fresh values are those before loading, by rank.
    """
    if all(_is_fresh(found, fresh, rank) for rank in found.wrong_ranks):
        return NotLoaded()
    sizes = {size for each in (saved_on, layout) for _, size in each.axes}
    numbers = sorted(sizes | {saved_on.num_ranks, layout.num_ranks})
    for parts, right in _divided(found, numbers):
        order = _order(parts, right, found.tolerance)
        if order is not None and order != tuple(range(len(right))):
            return Misplaced(order)
    return copy_cause(found, layout)


def _is_fresh(found: ComparedValue, fresh: Fresh, rank: int) -> bool:
    value, before = found.got[rank], fresh.get(rank)
    if value is None or before is None:
        # The state of a new optimizer is empty, or zero.
        return value is None or not value.any()
    return is_close(value, before, 0.0)


def _divided(
    found: ComparedValue, numbers: Sequence[int]
) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Yield parts of the value, and the right ones: shards by rank, copies along each dimension."""
    got = [found.got[rank] for rank in sorted(found.got)]
    right = [found.expected[rank] for rank in sorted(found.got)]
    present = [each for each in got if each is not None]
    if len(present) < len(got):
        return
    if any(not torch.equal(each, right[0]) for each in right):
        yield present, right
        return
    first = present[0]
    if first.shape != right[0].shape:
        return
    for number in numbers:
        for dim in range(first.dim()):
            if number > 1 and first.shape[dim] >= number:
                yield [*first.chunk(number, dim)], [*right[0].chunk(number, dim)]


def _order(
    parts: Sequence[torch.Tensor], right: Sequence[torch.Tensor], tolerance: float
) -> tuple[int, ...] | None:
    """Return the index of the right part at each place; None if one is no right part."""
    order = list[int]()
    for place, part in enumerate(parts):
        places = (place, *range(len(right)))
        same = (i for i in places if is_close(part, right[i], tolerance))
        if (index := next(same, None)) is None:
            return None
        order.append(index)
    return tuple(order)
