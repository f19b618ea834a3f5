"""A bound on the rounding of real gradients, and the cause of a larger error.

Note [What rounding can do]
    Let g_1, ..., g_n be the gradients of single micro-batches on single ranks that a
    reduced gradient consists of, as autograd returns them: in the gradient's dtype, with
    unit roundoff u (half of its eps). The subject and the reference compute them with the
    same operators on the same numbers, so they are equal to the bit and carry no error.

    For each order of the n - 1 additions, and so for each way of accumulating, for rings
    and for trees, the computed sum is sum(g_i * (1 + t_i)) with |t_i| <= gamma(n - 1) and
    gamma(k) = k u / (1 - k u): each term takes part in at most n - 1 additions, and each
    addition multiplies it by 1 + d with |d| <= u. So the error of each element is at most
    gamma(n - 1) * sum(|g_i|).

    - Zeros that a buffer starts with are added exactly.
    - A mean divides by the number of ranks, each term or their sum, which rounds once; or
      it multiplies by the reciprocal, which was rounded as well: gamma(n + 1).
    - Additions of 16-bit numbers are done in float32 and then rounded. That is the
      rounding of the exact result, as 24 >= 2p + 2 for significands of p = 8 or 11 bits.
      To round more rarely, as a sum in float32 does that is rounded once, only helps.
    - A gradient whose dtype is narrower than its parameter's is rounded before it is g_i.
    - Ranks that sum in a narrower `wire_dtype` round there: u is that dtype's, and each term is
      rounded once more, as it is cast. The g_i are whole numbers, and exact. Only parameters
      with a replicated axis are sent.
    - Sums and divisions may lead below the smallest normal number, where a result may be
      rounded to a multiple of the smallest subnormal, or to 0. The smallest normal number
      bounds what each of at most 2n operations adds to the error.
    - The reference adds up in float64, and so errs by gamma(n - 1) of *its* u = 2^-53. This
      bound is computed in float64 too. Twice gamma(n) covers both.

    There is no bound where k u >= 1; only in worlds of hundreds of ranks with 16-bit
    gradients.

    Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
    SIAM 2002, sections 3.1 (gamma), 4.2 (summation in any order) and 2.1 (gradual
    underflow); S. A. Figueroa, When is double rounding innocuous?, SIGNUM Newsletter 30
    (1995).

Note [What fits by chance]
    A wrong gradient of few elements in a narrow dtype lies within the bound of some known
    mistake by chance. So a cause is named only where the bounds exclude every other known
    cause, and chance too: an element of any value up to the sum of the magnitudes of its
    terms fits a candidate with the probability bound / magnitude. The product over the
    elements in which the candidate differs from the right value, times the number of
    candidates, is the expected number of mistakes that fit by chance. It has to be small.
    Otherwise the gradient is farther off than rounding can be, and no more is known.
"""

import math
from typing import Final

import torch

from syncverify.judge.decoding import explain, explanations
from syncverify.judge.reference import ExpectedGradient
from syncverify.judge.violation import Cause
from syncverify.scenario.layout import is_managed

_UNIT_ROUNDOFF_OF_REFERENCE = torch.finfo(torch.float64).eps / 2
# The sum of a wrong cause rounds as well. Its bound is up to this factor larger.
_LEEWAY = 4
_MAX_CHANCE: Final = 1e-4  # of a mistake that fits by chance
_SAME: Final = 1e-12  # relative difference of one value, computed twice in float64


def error_bound(expected: ExpectedGradient) -> torch.Tensor:
    """Return bounds on the rounding of each element, in float64; infinite where none exists."""
    wire = expected.reference.capabilities.wire_dtype
    is_sent = bool(wire) and is_managed(expected.spec)
    dtype = wire if is_sent else expected.spec.effective_grad_dtype
    info = torch.finfo(getattr(torch, dtype))
    num_terms = len(expected.ranks) * expected.count
    num_roundings = num_terms - 1 + is_sent + (2 if expected.divisor > 1 else 0)
    relative = gamma(num_roundings, info.eps / 2)
    relative += 2 * gamma(num_terms, _UNIT_ROUNDOFF_OF_REFERENCE)
    return relative * expected.magnitude() + 2 * num_terms * info.smallest_normal


def gamma(num_roundings: int, unit_roundoff: float) -> float:
    """Bound the relative error of a number that was rounded that often."""
    total = num_roundings * unit_roundoff
    return total / (1 - total) if total < 1 else math.inf


def explain_rounded(
    expected: ExpectedGradient, observed: torch.Tensor | None
) -> Cause | None:
    """Return the cause of a gradient that is farther off than rounding can be; else None."""
    if observed is not None and _is_within_bound(expected, observed):
        return None
    # No explanation is of this kind, so none is tried: they are for exact sums.
    malformed = explain(expected, observed, only="not_finite")
    if observed is None or malformed is not None:
        return malformed
    exact, bound = observed.to(torch.float64), error_bound(expected)
    if known := _only_cause(expected, exact, bound):
        return known
    error = (exact - expected.value()).abs().reshape(-1)
    ratios = error / bound.reshape(-1)
    worst = int(ratios.argmax())
    return Cause(
        "out_of_bound",
        f"{int((ratios > 1).sum())} of {len(ratios)} elements are farther off than rounding "
        f"can be, element {worst} (flattened) the most: by "
        f"{error[worst]:.3g}, {ratios[worst]:.3g} times the bound",
    )


def _only_cause(
    expected: ExpectedGradient, exact: torch.Tensor, bound: torch.Tensor
) -> Cause | None:
    """Return the one known cause that fits; None if several fit, or one may by chance."""
    value, num_candidates = expected.value(), 0
    fitting = list[tuple[Cause, torch.Tensor, float]]()
    for cause, candidate in explanations(expected):
        num_candidates += 1
        leeway = _LEEWAY * (bound + bound / (1 + value.abs()) * candidate.abs())
        if not (exact.any() or candidate.any()):
            return cause  # all zeros: no rounding of a sum gives them
        told_apart = (candidate - value).abs() > leeway
        if told_apart.any() and ((exact - candidate).abs() <= leeway).all():
            # The share of numbers that would fit as well.
            shares = (leeway / expected.magnitude())[told_apart].clamp(max=1)
            fitting.append((cause, candidate, float(shares.prod())))
    if not fitting:
        return None
    cause, first, chance = fitting[0]
    for other, candidate, _ in fitting[1:]:
        # Two words for one value agree, as causes of one kind do.
        is_same = torch.allclose(first, candidate, rtol=_SAME, atol=0)
        if other.kind != cause.kind and not is_same:
            return None
    return cause if chance * num_candidates < _MAX_CHANCE else None


def _is_within_bound(expected: ExpectedGradient, observed: torch.Tensor) -> bool:
    value, dtype = expected.value(), getattr(torch, expected.spec.effective_grad_dtype)
    if observed.shape != value.shape or observed.dtype != dtype:
        return False
    error = (observed.to(torch.float64) - value).abs()
    return bool((error <= error_bound(expected)).all())
