"""Factors between tensors, and the axes whose number of ranks is a factor."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

import torch

from syncverify.judge.whole_step.layout import Layout

# Relative error of a factor that is found by dividing elements in float64.
RELATIVE: Final = 1e-9
# A tolerance of lower dtypes is 20 times the standard deviation of rounding, and 5 of these are
# enough for a factor, which is a mean over the elements.
_SLACK_PER_ERROR: Final = 4.0
_MAX_DIVISOR: Final = 16  # largest divisor of a fraction that is simple


def factor_of(
    value: torch.Tensor | None,
    base: torch.Tensor | None,
    slack: float = 0.0,
    slack_of_base: float = 0.0,
) -> float | None:
    """Return the number by which a tensor is a multiple of another one; None for none.

    Slacks are the differences of an element that rounding of lower dtypes explains.
    """
    factor = multiple_of(value, base, slack, slack_of_base)
    if factor is None or value is None:
        return None
    largest = float(value.abs().max())
    return simplest(factor, (slack + abs(factor) * slack_of_base) / largest)


def multiple_of(
    value: torch.Tensor | None,
    base: torch.Tensor | None,
    slack: float = 0.0,
    slack_of_base: float = 0.0,
) -> float | None:
    """Return the number of `factor_of` before it is made simple; arguments are the same."""
    if value is None or base is None or value.shape != base.shape or not base.any():
        return None
    flat, other = value.double().flatten(), base.double().flatten()
    factor = float(flat @ other / (other @ other))
    rest = (flat - factor * other).abs().max()
    allowed = slack + abs(factor) * slack_of_base
    largest = float(flat.abs().max())
    # Rounding alone would be a multiple of anything.
    if factor == 0 or 2 * allowed >= largest > 0:
        return None
    return rounded(factor) if float(rest) <= RELATIVE * largest + allowed else None


def simplest(factor: float, slack: float) -> float:
    """Return the simplest factor that rounding allows: a power of two, or a fraction.

    The slack is the relative difference of values that rounding of lower dtypes explains.
    """
    if not slack:
        return rounded(factor)
    if not 0 < factor < math.inf:
        return factor
    if factor < 1:
        return rounded(1 / simplest(1 / factor, slack))
    error = slack / _SLACK_PER_ERROR
    power_of_two = 2.0 ** round(math.log2(factor))
    if abs(factor / power_of_two - 1) <= error:
        return power_of_two
    for divisor in range(1, _MAX_DIVISOR + 1):
        near = round(factor * divisor) / divisor
        if abs(factor / near - 1) <= error:
            return rounded(near)
    return rounded(factor)


def common_factor(factors: Sequence[float | None], slack: float) -> float | None:
    """Return the one factor of several tensors; None if factors differ, or one is missing."""
    first = factors[0]
    for each in factors:
        if first is None or each is None or not abs(each / first - 1) <= slack:
            return None
    return first


def rounded(factor: float) -> float:
    """Return a factor without the noise of its last digits."""
    return float(f"{factor:.9g}")


def rounded_weight(weight: float) -> float:
    """Return a weight without the noise of its last digits; 0 where it is that noise alone."""
    return rounded(weight) if abs(weight) > RELATIVE else 0.0


def is_number(factor: float, number: float) -> bool:
    """Tell whether a factor is a number or its reciprocal; one of 1 or less explains nothing."""
    if not factor:
        return False
    whole = factor if factor >= 1 else 1 / factor
    # The reciprocal of a rounded factor is exact to nine digits.
    return number > 1 and abs(whole / number - 1) <= 10 * RELATIVE


def axis_sets(layout: Layout) -> Iterator[frozenset[str]]:
    """Yield the sets of axes with more than one rank, the small ones first."""
    names = layout.large_axes
    for number in range(1, len(names) + 1):
        yield from map(frozenset, combinations(names, number))


def axes_with(layout: Layout, factor: float) -> frozenset[frozenset[str]]:
    """Return the smallest sets of axes whose number of ranks is a factor, or its reciprocal."""
    axes = [e for e in axis_sets(layout) if is_number(factor, layout.size(e))]
    fewest = min(map(len, axes), default=0)
    return frozenset(each for each in axes if len(each) == fewest)
