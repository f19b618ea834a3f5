"""Factors between tensors, and what they may be the size of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from typing import Final

import torch

from syncverify.whole_step.layout import Layout

# A factor that is found by division is as exact as the elements that it was found from.
RELATIVE: Final = 1e-9


def factor_of(value: torch.Tensor | None, base: torch.Tensor | None) -> float | None:
    """Return the number by which a tensor is a multiple of another one; None for none."""
    if value is None or base is None or value.shape != base.shape or not base.any():
        return None
    flat, other = value.double().flatten(), base.double().flatten()
    factor = float(flat @ other / (other @ other))
    rest = (flat - factor * other).abs().max()
    is_multiple = bool(rest <= RELATIVE * flat.abs().max()) and factor != 0
    return rounded(factor) if is_multiple else None


def rounded(factor: float) -> float:
    """Return a factor without the noise of its last digits."""
    return float(f"{factor:.9g}")


def rounded_weight(weight: float) -> float:
    """Return a weight of several, which are near 1, without noise; 0 where it is noise alone."""
    return rounded(weight) if abs(weight) > RELATIVE else 0.0


def is_number(factor: float, number: float) -> bool:
    """Whether a factor is a number above 1."""
    # A rounded factor of 1 by a number is nine digits exact.
    return number > 1 and abs(factor / number - 1) <= 10 * RELATIVE


def axis_sets(layout: Layout) -> Iterator[frozenset[str]]:
    """Yield the sets of axes with more than one rank, the small ones first."""
    names = [name for name, size in layout.axes if size > 1]
    numbers = range(1, len(names) + 1)
    sets = chain.from_iterable(combinations(names, number) for number in numbers)
    yield from map(frozenset, sets)


def axes_with(layout: Layout, factor: float) -> frozenset[frozenset[str]]:
    """Return the fewest axes whose number of ranks is a factor, or 1 by the factor."""
    whole = factor if factor >= 1 else 1 / factor
    axes = [each for each in axis_sets(layout) if is_number(whole, layout.size(each))]
    fewest = min(map(len, axes), default=0)
    return frozenset(each for each in axes if len(each) == fewest)
