"""Causes of a wrong gradient that equals no known mistake: a factor, rounding, a part, counts."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import torch

from syncverify.judge.cause import Cause
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.narrow_sums import is_narrow_sum

_POWERS = [Fraction(2) ** power for power in (-1, 1, -2, 2, -3, 3, -4, 4)]
_NARROW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_BITS_OF_FLOAT64 = 53


def likeliest(expected: ExpectedGradient, observed: torch.Tensor) -> Cause:
    """Return the likeliest cause of a finite value that no explanation equals."""
    exact = observed.to(torch.float64)
    return (
        _scaled(expected, exact)
        or _rounded(expected, exact)
        or _partly_wrong(expected, observed)
        or _miscounted(expected, exact)
        or _scaled_by_power(expected, exact)
        or Cause("unexplained", "no known defect gives this value")
    )


def _scaled(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    """Find a common factor; elements of one magnitude would fit any factor."""
    value = expected.value()
    if value.abs().unique().numel() < 2:
        return None
    ratio = (observed / value).reshape(-1)
    if not torch.equal(ratio, ratio[:1].expand_as(ratio)):
        return None
    factor = Fraction(ratio[0].item()).limit_denominator(1000)
    text = f"every element is multiplied by {factor}"
    used = expected.divisor / factor if factor > 0 else Fraction()
    if expected.divisor > 1 and used.denominator == 1 and used:
        text += f", as if the sum were divided by {used}, and not by {expected.divisor}"
    return Cause("scaled", text)


def _scaled_by_power(
    expected: ExpectedGradient, observed: torch.Tensor
) -> Cause | None:
    """Find a small power of two as a factor, which a gradient of one magnitude may have, too."""
    for factor in _POWERS:
        if torch.equal(observed, expected.value() * float(factor)):
            text = f"it is multiplied by {factor}, which no number of the scenario explains"
            return Cause("scaled", text)
    return None


def _rounded(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    """Find narrower dtypes in which a sum of so many contributions errs by so much."""
    own = torch.finfo(getattr(torch, expected.spec.effective_grad_dtype))
    num_terms = len(expected.ranks) * expected.count
    if not num_terms:
        return None
    # Contributions to an element mostly have the same sign: then this is the relative error.
    error = ((observed - expected.value()) / expected.magnitude()).abs().max().item()
    is_wrong = observed != expected.value()
    names = [
        info.dtype
        for info in map(torch.finfo, _NARROW_DTYPES)
        if info.eps > own.eps
        and error <= num_terms * info.eps / 2
        and not is_wrong[_is_exact_in(expected, info)].any()
        and is_narrow_sum(expected, observed, getattr(torch, info.dtype))
    ]
    if not names:
        return None
    return Cause("rounded", f"it is rounded, as if summed in {' or '.join(names)}")


def _is_exact_in(expected: ExpectedGradient, info: torch.finfo) -> torch.Tensor:
    """Tell which elements a dtype sums without rounding: multiples of a number within its bits."""
    divisor = expected.divisor
    if divisor & (divisor - 1):  # a third has no end in binary digits
        return torch.zeros_like(expected.value(), dtype=torch.bool)
    # No partial sum is larger than that of the magnitudes. Parts that are divided first have as
    # many digits as the sum.
    largest, unit = expected.magnitude() * divisor, _common_unit(expected)
    least = info.smallest_normal * info.eps * divisor
    return (largest <= unit * (2 / info.eps)) & (largest <= info.max) & (unit >= least)


def _common_unit(expected: ExpectedGradient) -> torch.Tensor:
    """Return the largest power of two that divides all contributions to each element."""
    parts = torch.stack([expected.part(rank, [m]) for rank, m in expected.terms()])
    mantissa, exponent = torch.frexp(parts)
    digits = torch.ldexp(mantissa, torch.tensor(_BITS_OF_FLOAT64)).to(torch.int64)
    lowest = torch.ldexp((digits & -digits).double(), exponent - _BITS_OF_FLOAT64)
    is_number = parts.isfinite() & (parts != 0)
    return torch.where(is_number, lowest, math.inf).amin(dim=0)


def _partly_wrong(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    value = expected.value().reshape(-1)
    wrong = (observed.to(torch.float64).reshape(-1) != value).nonzero().reshape(-1)
    if len(wrong) == len(value):
        return None
    first, last = int(wrong[0]), int(wrong[-1])
    flat = observed.reshape(-1)[wrong]
    own = expected.part(expected.rank).reshape(-1)[wrong]
    holds = "wrong values"
    if torch.equal(flat, own.to(flat.dtype)):
        holds = f"rank {expected.rank}'s own, unreduced gradient"
    elif not flat.any():
        holds = "zeros"
    text = f"elements {first}..{last} of {len(value)} (flattened) hold {holds}"
    return Cause("partly_wrong", text)


def _miscounted(expected: ExpectedGradient, observed: torch.Tensor) -> Cause | None:
    """Solve for the number of times that each (rank, micro-batch) was counted."""
    keys = list(itertools.product(expected.comparable(), range(expected.count)))
    if not keys:
        return None
    columns = torch.stack(
        [expected.part(r, [m]).reshape(-1) / expected.divisor for r, m in keys], dim=1
    )
    if columns.shape[0] < columns.shape[1]:
        return None
    weights = torch.linalg.lstsq(columns, observed.reshape(-1, 1)).solution.round()
    if not torch.equal((columns @ weights).reshape(observed.shape), observed):
        return None
    wrong = [
        f"micro-batch {m} of rank {rank} counted {int(count)} times instead of {owed}"
        for (rank, m), count in zip(keys, weights.reshape(-1), strict=True)
        if int(count) != (owed := int(rank in expected.ranks))
    ]
    return Cause("miscounted", "; ".join(wrong))
