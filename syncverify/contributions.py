"""Exact gradient values: what one rank's micro-batch adds to one parameter.

Every contribution is a small integer, chosen so that any sum over all ranks and
micro-batches is exact in the dtypes involved: the verdict needs no tolerance, and the
order of the reduction cannot matter. Within one element, contributions of different
(rank, micro-batch) are distinct wherever the dtype leaves room, and share their sign, so
that a wrong sum tells which contribution is missing and which came twice. Where a world
is too wide even to count in the dtype, a part of the contributions to each element is 0.
"""

from __future__ import annotations

import functools
import math

import torch

from syncverify import agenda
from syncverify.layout import contributing_ranks, local_shape
from syncverify.scenario import ParameterSpec, Scenario
from syncverify.vocabulary import HALVING

# Integers up to 2**bits are exact: IEEE 754 significand widths. float32 is kept well
# below its 24 bits: sums of several steps (a stale gradient) stay exact as well, and
# numbers in reports stay readable. float64 is kept below its 53 for the same reasons, and
# above 24: what is summed in float32 shows.
_EXACT_BITS = {"float32": 16, "bfloat16": 8, "float16": 11, "float64": 30}


def contribution(
    scenario: Scenario,
    parameter: ParameterSpec,
    *,
    rank: int,
    step: int,
    micro_batch: int,
) -> torch.Tensor:
    """Compute the gradient that one micro-batch on one rank adds to a parameter.

    Args:
        scenario: The scenario played.
        parameter: One of its parameters.
        rank: Global rank.
        step: Optimizer step, from 0.
        micro_batch: Micro-batch of that step, from 0.

    Returns:
        Whole numbers in float64, shape of the rank's local part.
    """
    shape = local_shape(scenario.mesh, parameter, rank)
    numel = math.prod(shape)
    accumulations = agenda.most_backwards(scenario, step)
    contributors = scenario.mesh.num_ranks * accumulations
    index = rank * accumulations + micro_batch
    count = len(contributing_ranks(scenario.mesh, parameter, rank))
    unit = _unit(parameter, count, _divisor_of_parts(scenario))
    position = scenario.parameters.index(parameter)
    numbers = _numbers(
        numel,
        salt=7919 * step + 104_729 * position,
        index=index,
        contributors=contributors,
        room=_sum_limit(parameter) // unit,
        span=_span(parameter, contributors, unit),
    )
    return (unit * numbers).reshape(shape)


# Shapes and counts are small and few, so that most calls repeat one of another scenario.
@functools.lru_cache(maxsize=4096)
def _numbers(
    numel: int, *, salt: int, index: int, contributors: int, room: int, span: int
) -> torch.Tensor:
    """Compute what contributor `index` adds to each element, in units; read only."""
    key = _hash(torch.arange(numel) + salt)
    if contributors > room:  # the dtype cannot even count them: some add 0
        values = (_spread(key, index, contributors) < room) * 1
    else:
        values = 1 + _spread(key, index, span)
    sign = 1 - 2 * (_hash(key) % 2)
    return (sign * values).to(torch.float64)


def _spread(key: torch.Tensor, index: int, span: int) -> torch.Tensor:
    """Map contributor `index` to 0..span-1, distinct for indices below span."""
    strides = torch.tensor(_coprimes(span))
    stride = strides[key % len(strides)]
    spread = (_hash(key + 1) % span + index * stride) % span
    if span & (span - 1):
        return spread
    # One to one below a power of two, and no longer linear in the index: contributors of
    # an element are linearly independent over few elements, so counts can be solved for.
    return spread ^ (spread >> span.bit_length() // 2)


def _span(parameter: ParameterSpec, contributors: int, unit: int) -> int:
    """Count the distinct values for which the sum over all contributors is exact."""
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
    return 1 << _EXACT_BITS[parameter.effective_grad_dtype]


def _one_limit(parameter: ParameterSpec) -> int:
    return min(_sum_limit(parameter), 1 << _EXACT_BITS[parameter.dtype])


def _divisor_of_parts(scenario: Scenario) -> int:
    """Return what a contribution is a multiple of, for all its parts to be whole.

    Parts are accumulated one after the other, and a sum that has half an integer in it
    takes a bit more than the whole sum. A backward that runs twice takes half each time,
    and a use in two reentrant checkpoints half of that.
    """
    return 4 if scenario.backward in HALVING else 1


def _unit(parameter: ParameterSpec, count: int, least: int) -> int:
    """Return what every contribution to a sum over `count` ranks is a multiple of."""
    # Subjects that average divide by the count. Powers of two divide exactly in binary
    # floating point; the odd part must divide every contribution, if it fits at all.
    odd_part = count // (count & -count)
    return least * odd_part if least * odd_part <= _one_limit(parameter) else least


@functools.lru_cache
def _coprimes(span: int) -> tuple[int, ...]:
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
