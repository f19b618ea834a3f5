"""Contributions: the exact gradient that one micro-batch of a rank adds to a parameter.

* Every contribution is a small integer, times a power of two. Any sum over all ranks and
  micro-batches is exact in the dtypes involved, so the verdict needs no tolerance and no order
  of reduction.
* Within one element, contributions of different (rank, micro-batch) share their sign, unless
  the parameter's word `gradient` is `cancelling` or `zero`. They are distinct wherever the dtype leaves
  room. A wrong sum then tells which contribution is missing and which came twice.
* Where the dtype cannot even count all contributors, some contributions to each element
  are 0.
* The power of two is the parameter's `magnitude`, which changes exponents alone. It differs
  between parameters, so that a clamp, a narrower exponent or a threshold shows.

Note [Means by a product]
    A mean over n ranks divides by n, or it multiplies by 1 / n, which float32 rounds. Both give k
    of n * k, for every whole number k, if the reciprocal is off by at most a quarter of eps. That
    holds for 3, 5 and 6, and not for 7: 21 * (1 / 7) is more than 3. The product rounds to k all
    the same where the significand of k is small enough, for 7 below 4 / 3. Each sum of distinct
    powers of 4 is: the sum of a rank, of all ranks, or of some. So contributions to a mean over
    7 ranks are distinct powers of 4; where no power is left, they are 0. Up to 40 ranks,
    powers of 4 or of 8 are enough.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple, TypeVar

import torch

from syncverify.scenario import step_plan
from syncverify.scenario.feature_table import BACKWARDS, ZERO
from syncverify.scenario.layout import contributing_ranks, local_shape
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec

# Integers up to 2**bits are exact: IEEE 754 significand widths. float32 is kept well
# below its 24 bits: sums of several steps (a stale gradient) stay exact as well, and
# numbers in reports stay readable. float64 is kept below its 53 for the same reasons, and
# above 24, so that a float64 gradient that was summed in float32 is wrong.
_EXACT_BITS = {"float32": 16, "bfloat16": 8, "float16": 11, "float64": 30}

# Factors of the micro-batches that cancel out. Times 256, numbers of 8 bits are numbers of 8 bits
# again, and no other number of theirs is added without a loss.
_CANCELLING = {0: 256, 2: -256}

# Results of more elements are computed again: one of a huge parameter has 16 MB.
_MAX_KEPT_NUMEL = 2**14
_Made = TypeVar("_Made")

# Exponents of the factors, by position of the parameter; the first one is 0, so a scenario of
# one parameter has small numbers. float16 has room for twice the largest sum eight times over:
# some words scale gradients up and down again.
_EXPONENTS = (0, -20, 30, 8, -40)
_EXPONENTS_OF_FLOAT16 = (0, -6, 1, -3)


def magnitude(scenario: Scenario, parameter: ParameterSpec) -> float:
    """Return the power of two that multiplies all contributions to a parameter."""
    is_narrow = "float16" in {parameter.dtype, parameter.effective_grad_dtype}
    exponents = _EXPONENTS_OF_FLOAT16 if is_narrow else _EXPONENTS
    position = scenario.parameters.index(parameter)
    return math.ldexp(1.0, exponents[position % len(exponents)])


def contribution(
    scenario: Scenario,
    parameter: ParameterSpec,
    *,
    rank: int,
    step: int,
    micro_batch: int,
) -> torch.Tensor:
    """Return a micro-batch's contribution, divided by `magnitude`.

    It has whole numbers in float64, in the local shape of the rank.
    """
    shape = local_shape(scenario.mesh, parameter, rank)
    numel = math.prod(shape)
    accumulations = step_plan.max_micro_batches(scenario, step)
    contributors = scenario.mesh.num_ranks * accumulations
    index = rank * accumulations + micro_batch
    count = len(contributing_ranks(scenario.mesh, parameter, rank))
    # Some backwards accumulate a contribution in parts. A partial sum with half an integer needs one
    # bit more than the whole sum, and may round. A backward that runs twice halves the contribution;
    # a use in two reentrant checkpoints halves each half. So 4 divides it.
    parts = 4 if BACKWARDS[scenario.backward].halves else 1
    scale = _scale(parameter, count, contributors, parts)
    position = scenario.parameters.index(parameter)
    factor = 1
    if _cancels(scenario, parameter, step):
        factor = _CANCELLING.get(micro_batch, 1)
        index -= micro_batch if factor < 0 else 0  # the number of the first one again
    if _is_zero(scenario, parameter, rank, step):
        factor = 0
    salt = 7919 * step + 104_729 * position
    numbers = _kept(_numbers, numel)(numel, salt, index, contributors, scale)
    return (numbers * (factor * scale.unit)).reshape(shape)


class _Scale(NamedTuple):
    """The numbers that contributions to a parameter may be."""

    unit: int
    room: int  # largest exact sum, in units
    span: int  # number of distinct values
    spacing: int  # binary digits from one value to the next; 0 for any values


# Cached: each micro-batch of each rank asks for the scale.
@functools.lru_cache(maxsize=1024)
def _scale(
    parameter: ParameterSpec, count: int, contributors: int, least: int
) -> _Scale:
    """Return the scale of contributions that `count` of some add up, each a multiple of `least`."""
    limits = parameter
    if parameter.gradient == "cancelling":  # sums are exact in bfloat16
        limits = replace(parameter, dtype="bfloat16", grad_dtype=None)
    unit = _unit(limits, count, least)
    dtypes = (limits.effective_grad_dtype, parameter.effective_grad_dtype)
    spacing = max(_spacing(count, dtype) for dtype in dtypes)
    limit = _one_limit(limits) if spacing else _sum_limit(limits)
    return _Scale(unit, limit // unit, _span(limits, contributors, unit), spacing)


def _cancels(scenario: Scenario, parameter: ParameterSpec, step: int) -> bool:
    """Tell whether the first and the third micro-batch of a step cancel out."""
    return (
        (parameter.gradient, parameter.used) == ("cancelling", "always")
        and parameter.dtype == parameter.effective_grad_dtype == "float32"
        and step_plan.num_micro_batches(scenario, step) >= len(_CANCELLING) + 1
    )


def _is_zero(
    scenario: Scenario, parameter: ParameterSpec, rank: int, step: int
) -> bool:
    """Tell whether the contributions of a rank to a step are zero in all elements."""
    is_meant = parameter.gradient == ZERO and step % 2 == 0
    return is_meant and _is_special(scenario, parameter, rank)


def with_overflow(
    constant: torch.Tensor,
    scenario: Scenario,
    parameter: ParameterSpec,
    *,
    rank: int,
    step: int,
    micro_batch: int,
) -> torch.Tensor:
    """Return a contribution with the Inf or NaN of the parameter's `gradient`, if it has one.

    One rank's first element overflows. The rank is another one for each parameter, the last one
    first. Inf has the sign that the element has.
    """
    is_meant = step % 2 == 0 and micro_batch == 0 and constant.numel()
    if parameter.gradient not in {"inf", "nan"} or not is_meant:
        return constant
    if not _is_special(scenario, parameter, rank):
        return constant
    overflowing = constant.clone()
    first = overflowing.view(-1)[:1]
    first.copy_(torch.full_like(first, float(parameter.gradient)).copysign(first))
    return overflowing


def _is_special(scenario: Scenario, parameter: ParameterSpec, rank: int) -> bool:
    """Tell whether a rank is the one of its peers that has the special values."""
    peers = contributing_ranks(scenario.mesh, parameter, rank)
    position = scenario.parameters.index(parameter)
    return rank == peers[-1 - position % len(peers)]


def shows_special_values(
    scenario: Scenario, parameter: ParameterSpec, step: int
) -> bool:
    """Tell whether contributions to a step have the values of the parameter's `gradient`."""
    if parameter.gradient == "cancelling":
        return _cancels(scenario, parameter, step)
    count = 1 if parameter.gradient != ZERO else None  # of micro-batches
    ranks = range(scenario.mesh.num_ranks)
    special = [rank for rank in ranks if _is_special(scenario, parameter, rank)]
    has_some = step_plan.has_gradient(scenario, parameter, special, step, count)
    return step % 2 == 0 and has_some


def _kept(
    function: functools._lru_cache_wrapper[_Made], numel: int
) -> Callable[..., _Made]:
    """Return a function that keeps its results, unless these would be large."""
    return function if numel <= _MAX_KEPT_NUMEL else function.__wrapped__


# Shapes and counts are small and few, so most calls repeat a call of another scenario.
@functools.lru_cache(maxsize=4096)
def _numbers(
    numel: int, salt: int, index: int, contributors: int, scale: _Scale
) -> torch.Tensor:
    """Return the contribution of contributor `index` in units: shape (numel,), float64.

    The result is cached, so callers must not write to it.
    """
    _, room, span, spacing = scale
    if spacing:
        levels = max(1, room.bit_length() // spacing)
        place = _spread(numel, salt, index, max(contributors, levels))
        values = torch.where(place < levels, 1 << place * spacing, 0)
    elif contributors > room:  # too many for the dtype: some add 0
        values = (_spread(numel, salt, index, contributors) < room).to(torch.int64)
    else:
        values = 1 + _spread(numel, salt, index, span)
    return (_kept(_signs, numel)(numel, salt) * values).to(torch.float64)


def _spread(numel: int, salt: int, index: int, span: int) -> torch.Tensor:
    """Map contributor `index` to 0..span-1, distinct below `span`: int64, shape (numel,)."""
    start, stride = _kept(_progressions, numel)(numel, salt, span)
    spread = (start + index * stride) % span
    if span & (span - 1):
        return spread
    # One to one below a power of two, and not linear in the index. Otherwise the vectors
    # of contributors over few elements would be linearly dependent, and `decoding` could
    # not solve for the count of each contributor.
    return spread ^ (spread >> span.bit_length() // 2)


# The contributors of a parameter share these two.
@functools.lru_cache(maxsize=1024)
def _signs(numel: int, salt: int) -> torch.Tensor:
    return 1 - 2 * (_hash(_keys(numel, salt)) % 2)


@functools.lru_cache(maxsize=1024)
def _progressions(
    numel: int, salt: int, span: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return start and stride, one of each per element, modulo `span`."""
    keys, strides = _keys(numel, salt), torch.tensor(_coprimes(span))
    return _hash(keys + 1) % span, strides[keys % len(strides)]


def _keys(numel: int, salt: int) -> torch.Tensor:
    return _hash(torch.arange(numel) + salt)


def _span(parameter: ParameterSpec, contributors: int, unit: int) -> int:
    """Return the largest number of distinct values with an exact sum over all contributors."""
    sum_limit, one_limit = _sum_limit(parameter), _one_limit(parameter)
    uniform = min(sum_limit // contributors, one_limit) // unit
    rounded = 1 << max(0, uniform.bit_length() - 1)
    if rounded >= contributors:
        return rounded
    triangular = contributors * (contributors + 1) // 2
    if unit * triangular <= sum_limit and unit * contributors <= one_limit:
        return contributors  # each value used once: the sum is triangular
    return max(1, uniform)


def _sum_limit(parameter: ParameterSpec) -> int:
    """Return the largest exact sum, which the gradient's dtype holds."""
    return 1 << _EXACT_BITS[parameter.effective_grad_dtype]


def _one_limit(parameter: ParameterSpec) -> int:
    """Return the largest exact contribution, computed in the parameter's dtype."""
    return min(_sum_limit(parameter), 1 << _EXACT_BITS[parameter.dtype])


def _unit(parameter: ParameterSpec, count: int, least: int) -> int:
    """Return the divisor of contributions to a sum over `count` ranks, a multiple of `least`."""
    # Subjects that average divide by the count. Powers of two divide exactly in binary
    # floating point; the odd part must divide every contribution, if it fits at all.
    odd_part = count // (count & -count)
    return least * odd_part if least * odd_part <= _one_limit(parameter) else least


@functools.lru_cache
def _spacing(count: int, dtype: str) -> int:
    """Return the binary digits between contributions to a mean; see Note [Means by a product]."""
    # Products of narrower dtypes are computed in float32.
    precise = torch.promote_types(getattr(torch, dtype), torch.float32)
    reciprocal = Fraction(torch.tensor(1 / count, dtype=precise).item())
    error = abs(reciprocal * count - 1)
    half_a_digit = Fraction(torch.finfo(getattr(torch, dtype)).eps) / 2
    if 2 * error <= half_a_digit:
        return 0
    spacings = range(1, half_a_digit.denominator.bit_length())
    return next(b for b in spacings if Fraction(2**b, 2**b - 1) * error <= half_a_digit)


@functools.lru_cache
def _coprimes(span: int) -> tuple[int, ...]:
    """List strides that step through 0..span-1 without repeating a value."""
    # Strides near the golden ratio of the span wrap around often, which keeps the
    # contributions of an element from forming an arithmetic progression.
    around = range(max(1, int(span * 0.381)), max(2, int(span * 0.381) + 64))
    return tuple(s for s in around if math.gcd(s, span) == 1)


def _hash(values: torch.Tensor) -> torch.Tensor:
    """Scramble int64 to non-negative int64 (the finalizer of MurmurHash3)."""
    values = values ^ (values >> 33)
    values = values * -49_064_778_989_728_563
    values = (values ^ (values >> 33)) * -4_265_267_296_055_464_877
    return (values ^ (values >> 33)) & 0x7FFF_FFFF_FFFF_FFFF
