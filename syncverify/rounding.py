"""How far a sum of real gradients may be from the exact one, and why one is farther.

Note [What rounding can do]
    Let g_1, ..., g_n be the gradients of single micro-batches on single ranks that a
    reduced gradient consists of, as autograd hands them out: in the gradient's dtype, of
    unit roundoff u (half of its eps). Both the subject and the reference compute these,
    with the same operators on the same numbers, so that they are the same to the bit: they
    carry no error. Whatever the order of the n - 1 additions, and so for each way of
    accumulating, for rings and for trees, the computed sum is sum(g_i * (1 + t_i)) with
    |t_i| <= gamma(n - 1) and gamma(k) = k u / (1 - k u): each term takes part in n - 1
    additions at most, and each of these multiplies it by 1 + d with |d| <= u. So the error
    of each element is at most gamma(n - 1) * sum(|g_i|).

    - Zeros that a buffer starts with are added exactly.
    - A mean divides by the number of ranks, each term or their sum, which rounds once; or
      it multiplies by the reciprocal, which was rounded as well: gamma(n + 1).
    - Additions of 16-bit numbers are done in float32 and then rounded. That is the
      rounding of the exact result, as 24 >= 2p + 2 for significands of p = 8 or 11 bits.
      To round more rarely, as a sum in float32 does that is rounded once, only helps.
    - A gradient whose dtype is narrower than its parameter's is rounded before it is g_i.
    - Sums and divisions may lead below the smallest normal number, where a result may be
      rounded to a multiple of the smallest subnormal, or to 0. That number bounds what each
      of at most 2n operations adds to the error.
    - The reference adds up in float64, and so errs by gamma(n - 1) of *its* u = 2^-53; this
      bound is computed in float64 likewise. Twice gamma(n) covers both.

    There is no bound where k u >= 1; only in worlds of hundreds of ranks with 16-bit
    gradients.

    Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
    SIAM 2002, sections 3.1 (gamma), 4.2 (summation in any order) and 2.1 (gradual
    underflow); S. A. Figueroa, When is double rounding innocuous?, SIGNUM Newsletter 30
    (1995).
"""

from __future__ import annotations

import math

import torch

from syncverify.decoding import Cause, explain, explanations
from syncverify.owed import Owed

_UNIT_ROUNDOFF_OF_REFERENCE = torch.finfo(torch.float64).eps / 2
# A cause is a guess at which wrong sum it was; that sum rounds as well, a little otherwise.
_LEEWAY = 4


def error_bound(owed: Owed) -> torch.Tensor:
    """Bound how far each element may be from the exact value, by nothing but rounding.

    See Note [What rounding can do].

    Args:
        owed: What the gradient should be.

    Returns:
        Bounds in float64, of the gradient's shape; infinite where there is none.
    """
    info = torch.finfo(getattr(torch, owed.spec.effective_grad_dtype))
    num_terms = len(owed.ranks) * owed.count
    num_roundings = num_terms - 1 + (2 if owed.divisor > 1 else 0)
    terms = [owed.part(rank, [m]) for rank in owed.ranks for m in range(owed.count)]
    magnitude = torch.stack(terms).abs().sum(dim=0) / owed.divisor
    relative = gamma(num_roundings, info.eps / 2)
    relative += 2 * gamma(num_terms, _UNIT_ROUNDOFF_OF_REFERENCE)
    return relative * magnitude + 2 * num_terms * info.smallest_normal


def gamma(num_roundings: int, unit_roundoff: float) -> float:
    """Bound the relative error of a number that was rounded that often."""
    total = num_roundings * unit_roundoff
    return total / (1 - total) if total < 1 else math.inf


def explain_rounded(owed: Owed, observed: torch.Tensor | None) -> Cause | None:
    """Explain a gradient that differs from what is owed by more than rounding can do.

    Args:
        owed: What it should be.
        observed: What it is; None where the parameter has no gradient.

    Returns:
        The cause, or None if the gradient is as near as it must be.
    """
    if observed is not None and _is_within_bound(owed, observed):
        return None
    malformed = explain(owed, observed, only="malformed")  # such as a wrong shape
    if observed is None or malformed is not None:
        return malformed
    exact, value, bound = observed.to(torch.float64), owed.value(), error_bound(owed)
    for cause, candidate in explanations(owed):
        leeway = _LEEWAY * (bound + bound / (1 + value.abs()) * candidate.abs())
        told_apart = ((candidate - value).abs() > leeway).any()
        if told_apart and ((exact - candidate).abs() <= leeway).all():
            return cause
    return _out_of_bound((exact - value).abs(), bound)


def _is_within_bound(owed: Owed, observed: torch.Tensor) -> bool:
    value, dtype = owed.value(), getattr(torch, owed.spec.effective_grad_dtype)
    if observed.shape != value.shape or observed.dtype != dtype:
        return False
    error = (observed.to(torch.float64) - value).abs()
    return bool((error <= error_bound(owed)).all())


def _out_of_bound(error: torch.Tensor, bound: torch.Tensor) -> Cause:
    ratios = (error / bound).reshape(-1)
    worst = int(ratios.argmax())
    return Cause(
        "out_of_bound",
        f"{int((ratios > 1).sum())} of {len(ratios)} elements are farther off than rounding "
        f"can be, element {worst} (flattened) the most: by "
        f"{error.reshape(-1)[worst]:.3g}, {ratios[worst]:.3g} times the bound",
    )
