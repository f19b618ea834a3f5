"""The mistake that makes a wrong gradient, found by trying what repairs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Final

import torch

from syncverify.whole_step.causes import (
    LacksSum,
    Missing,
    NotANumber,
    NotCleared,
    RanksDiffer,
    Scaled,
    StepMistake,
    Unexplained,
    Weighted,
)
from syncverify.whole_step.differences import ComparedValue
from syncverify.whole_step.layout import Layout

# A factor that is found by division is as exact as the elements that it was found from.
_RELATIVE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Known:
    """What the mistakes are looked for with.

    Attributes:
        layout: The layout that is wrong.
        parts: Gradient of the loss of each different part of the batch, by name.
        before: The gradients of the step before, by name.
        scale: The scale of the loss; 1 without a scaler.
    """

    layout: Layout
    parts: Sequence[Mapping[str, torch.Tensor]] = ()
    before: Mapping[str, torch.Tensor | None] | None = None
    scale: float = 1.0


def gradient_cause(found: ComparedValue, known: Known) -> StepMistake:
    """Return the first mistake, from simple to complex, that explains a wrong gradient."""
    tried = (
        _not_a_number(found),
        _missing(found),
        _scaled(found, known),
        _lacks_sum(found, known),
        _not_cleared(found, known),
        _weighted(found, known),
    )
    return next((each for each in tried if each is not None), _unknown(found))


def _unknown(found: ComparedValue) -> StepMistake:
    values = [value for value in found.got.values() if value is not None]
    are_alike = all(
        value.shape == values[0].shape and torch.equal(value, values[0])
        for value in values
    )
    return Unexplained() if are_alike else RanksDiffer(tuple(found.wrong_ranks))


def _not_a_number(found: ComparedValue) -> StepMistake | None:
    ranks = tuple(
        rank
        for rank, value in found.got.items()
        if value is not None
        if bool(value.isfinite().all()) != bool(found.expected[rank].isfinite().all())
    )
    return NotANumber(ranks) if ranks else None


def _missing(found: ComparedValue) -> StepMistake | None:
    empty = [rank for rank in found.wrong_ranks if _is_zero(found.got[rank])]
    return Missing(tuple(empty)) if empty == found.wrong_ranks else None


def _is_zero(value: torch.Tensor | None) -> bool:
    return value is None or not value.any()


def _scaled(found: ComparedValue, known: Known) -> StepMistake | None:
    factors = [
        factor_of(found.got[rank], found.expected[rank]) for rank in found.wrong_ranks
    ]
    first = factors[0]
    if first is None or len(factors) < len(found.got):
        return None
    if any(each is None or abs(each / first - 1) > _RELATIVE for each in factors):
        return None
    return scaled_by(first, known)


def scaled_by(factor: float, known: Known) -> Scaled:
    """Return the cause of values that are all multiplied by a factor."""
    whole = factor if factor >= 1 else 1 / factor
    axes = [each for each in _axes(known.layout) if _is(whole, known.layout.size(each))]
    fewest = min(map(len, axes), default=0)
    named = frozenset(each for each in axes if len(each) == fewest)
    is_scale = known.scale != 1 and _is(whole, known.scale)
    return Scaled(_rounded(factor), named, is_scale)


def _lacks_sum(found: ComparedValue, known: Known) -> StepMistake | None:
    for axes in _axes(known.layout):
        factors = set[float | None]()
        for rank in found.got:
            summed = _sum(found, known.layout.group(rank, axes))
            factor = None if summed is None else factor_of(found.expected[rank], summed)
            factors.add(None if factor is None else _rounded(factor))
        if len(factors) == 1 and (factor := factors.pop()) is not None:
            return LacksSum(axes, factor)
    return None


def _sum(found: ComparedValue, ranks: Sequence[int]) -> torch.Tensor | None:
    values = [found.got.get(rank) for rank in ranks]
    present = [each for each in values if each is not None]
    if not present or any(each.shape != present[0].shape for each in present):
        return None
    return torch.stack(present).sum(0)


def _not_cleared(found: ComparedValue, known: Known) -> StepMistake | None:
    before = None if known.before is None else known.before.get(found.name)
    if before is None or not before.any():
        return None
    for rank in found.wrong_ranks:
        value, expected = found.got[rank], found.expected[rank]
        if value is None or value.shape != before.shape:
            return None
        if factor_of(value - expected, before) is None:
            return None
    return NotCleared()


def _weighted(found: ComparedValue, known: Known) -> StepMistake | None:
    """Solve for the weight of each part of the batch, in the right gradient and in the wrong."""
    parts = [each[found.name] for each in known.parts if found.name in each]
    if len(parts) < 2 or len(parts) > parts[0].numel():
        return None
    wrong = [found.got[rank] for rank in found.wrong_ranks]
    if any(each is None or each.shape != parts[0].shape for each in wrong):
        return None
    basis = torch.stack([each.double().flatten() for each in parts], dim=1)
    right = _weights(basis, found.expected[found.wrong_ranks[0]])
    solved = [_weights(basis, each) for each in wrong if each is not None]
    if right is None or any(each is None for each in solved):
        return None
    first = solved[0]
    assert first is not None
    if any(each is None or not _alike(each, first) for each in solved):
        return None
    are_equal = _alike(first, first[0].expand_as(first)) and not _alike(
        right, right[0].expand_as(right)
    )
    ratios = tuple(_rounded(float(each)) for each in first / right)
    return Weighted(ratios, are_equal)


def _weights(basis: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """Return the weights with which the columns of a basis add up to a value."""
    target = value.double().flatten()
    if torch.linalg.matrix_rank(basis, rtol=_RELATIVE) < basis.shape[1]:
        return None
    weights: torch.Tensor = torch.linalg.lstsq(basis, target).solution
    error = (basis @ weights - target).abs().max()
    return weights if error <= _RELATIVE * target.abs().max() else None


def _alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    return torch.allclose(one, two, rtol=_RELATIVE, atol=_RELATIVE)


def factor_of(value: torch.Tensor | None, base: torch.Tensor | None) -> float | None:
    """Return the number by which a tensor is a multiple of another one; None for none."""
    if value is None or base is None or value.shape != base.shape or not base.any():
        return None
    flat, other = value.double().flatten(), base.double().flatten()
    factor = float(flat @ other / (other @ other))
    rest = (flat - factor * other).abs().max()
    is_multiple = bool(rest <= _RELATIVE * flat.abs().max()) and factor != 0
    return _rounded(factor) if is_multiple else None


def _rounded(factor: float) -> float:
    """Return a factor without the noise of its last digits."""
    return float(f"{factor:.9g}")


def _is(factor: float, number: float) -> bool:
    # A rounded factor of 1 by a number is nine digits exact.
    return number > 1 and abs(factor / number - 1) <= 10 * _RELATIVE


def _axes(layout: Layout) -> Iterator[frozenset[str]]:
    """Yield the sets of axes with more than one rank, the small ones first."""
    names = [name for name, size in layout.axes if size > 1]
    numbers = range(1, len(names) + 1)
    sets = chain.from_iterable(combinations(names, number) for number in numbers)
    yield from map(frozenset, sets)
