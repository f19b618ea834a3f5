"""Factors of wrong gradients that equal no known mistake: the run shows them, or other gradients do.

Note [A factor beside other gradients]
    A value alone tells a factor only if it is one of few known numbers, without a rounding. A
    run tells more:

    - A subject may divide by the number of elements in a collective. The launches have it.
    - A division in each micro-batch rounds each time. The same sums are computed, in the dtype of
      the gradient, as Note [Which rounding is a sum's] has it.
    - Any number may be the factor, such as memory that is read in another dtype. One element fits
      every factor. Of several elements, also of several gradients, the first one leaves an
      interval of factors, as wide as two roundings are; each further one has to have a factor in
      it. A number of b significant bits has one in few cases of 2**b. Elements count once
      if their right values have the same digits: ranks have the same gradient, and powers of two
      change no digits.

    A factor is named if so many candidates fit by chance in at most 2 of 100 cases, or if
    another gradient of the run is known to be scaled.
"""

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

from syncverify.judge.approximate_causes import divided_each_time
from syncverify.judge.decoding import (
    MAX_CHANCE,
    fits_by_chance,
    in_every_micro_batch,
    num_explanations,
    sizes_of,
)
from syncverify.judge.properties.gradient_facts import where
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import ExpectedGradient
from syncverify.judge.rounding import gamma
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Cause
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Observation

Wrong = tuple[ExpectedGradient, Observation, Cause]  # a wrong gradient and its cause
# A cause, and the values that it leads to: each element is in one of them.
_CauseAndValues = tuple[Cause, list[torch.Tensor]]
_SEEN: Final = 64  # so many elements tell a factor from chance


@dataclass(frozen=True)
class _Unexplained:
    """A gradient that no explanation equals."""

    expected: ExpectedGradient
    observed: torch.Tensor

    @functools.cached_property
    def num_explanations(self) -> int:
        """Number of values that were tried before a factor."""
        return num_explanations(self.expected)


def with_factors(judgement: Judgement, wrong: list[Wrong]) -> list[Wrong]:
    """Explain wrong gradients that have no explanation by a factor, where one fits."""
    unexplained = {
        index: _Unexplained(expected, observed)
        for index, (expected, seen, cause) in enumerate(wrong)
        if cause.kind == "unexplained"
        and (observed := seen.gradients[expected.spec.name]) is not None
    }
    causes = dict[int, Cause]()
    for _ in range(2):
        is_beside = any(each.kind == "scaled" for *_, each in wrong) or bool(causes)
        for index in [each for each in unexplained if each not in causes]:
            cause = _known(judgement, unexplained[index], is_beside=is_beside)
            causes |= {index: cause} if cause else {}
    rest = {index: e for index, e in unexplained.items() if index not in causes}
    causes |= dict(_of_common_factors(rest))
    return [
        (expected, seen, causes.get(index, cause))
        for index, (expected, seen, cause) in enumerate(wrong)
    ]


def reductions_of(
    judgement: Judgement, expected: ExpectedGradient
) -> list[CollectiveLaunch]:
    """List the rank's reductions of the step that name the parameter, or else all."""
    launches = launches_of(judgement.run.ranks[expected.rank].trace)
    reductions = [e for e in launches if e.reduces and e.moment.step == expected.step]
    return [e for e in reductions if expected.spec.name in e.parameters] or reductions


def _known(
    judgement: Judgement, wrong: _Unexplained, *, is_beside: bool
) -> Cause | None:
    """Return the factor of a collective or of each micro-batch; None if none fits."""
    expected, observed = wrong.expected, wrong.observed
    factors = itertools.chain(
        _of_collectives(judgement, expected), _each_time(expected, observed.dtype)
    )
    for number, (cause, values) in enumerate(factors, start=1):
        same = [value.to(observed.dtype) == observed for value in values]
        if not torch.stack(same).any(dim=0).all():
            continue
        if is_beside:
            return cause
        num_tried = wrong.num_explanations + number
        if not fits_by_chance(num_tried, observed, len(values)):
            return cause
    return None


def _of_collectives(
    judgement: Judgement, expected: ExpectedGradient
) -> Iterator[_CauseAndValues]:
    """Yield gradients that the number of elements of a reduction divides or multiplies."""
    value, divisor = expected.value(), expected.divisor
    launches = {each.numel: each for each in reductions_of(judgement, expected)}
    for size in launches.keys() - {0, 1, *sizes_of(expected).values()}:
        words = f"the number of elements that are reduced {where(launches[size])}"
        texts = {
            f"it is divided by {size}, {words}": value / size,
            f"it is multiplied by {size}, {words}": value * size,
        }
        if size != divisor > 1:
            text = f"its sum is divided by {size}, {words}, and not by {divisor}"
            texts[text] = value * divisor / size
        for text, scaled in texts.items():
            yield Cause("scaled", text, lines=(launches[size].source,)), [scaled]


def _each_time(
    expected: ExpectedGradient, dtype: torch.dtype
) -> Iterator[_CauseAndValues]:
    """Yield gradients that each micro-batch divides, in the dtype of the gradient."""
    for words, size in sizes_of(expected).items() if expected.count > 1 else ():
        for with_last in (True, False):
            text = in_every_micro_batch(size, words)
            text += "" if with_last else ", before the next one is added"
            for values in divided_each_time(expected, size, dtype, with_last=with_last):
                yield Cause("scaled", text), values


def _of_common_factors(
    wrong: Mapping[int, _Unexplained],
) -> Iterator[tuple[int, Cause]]:
    """Yield causes of gradients that have a factor in common, or one in all their elements."""
    groups = defaultdict[object, list[_Unexplained]](list)
    for each in wrong.values():
        groups[each.observed.dtype].append(each)
    alone = ([each] for each in wrong.values())
    factors = [_factor_of(group) for group in (*groups.values(), *alone)]
    for index, each in wrong.items():
        fitting = (factor for factor in factors if factor and factor.fits(each))
        for factor in itertools.islice(fitting, 1):
            yield index, Cause("scaled", factor.text)


class _Factor(NamedTuple):
    """A factor of the elements of some gradients: each one between the two fits all elements."""

    low: float
    high: float
    text: str

    def fits(self, wrong: _Unexplained) -> bool:
        """Tell whether it may be the factor of a gradient."""
        _, lows, highs = _factors(wrong)
        return bool((lows <= self.high).all() and (highs >= self.low).all())


def _factor_of(wrong: Sequence[_Unexplained]) -> _Factor | None:
    """Return the factor of gradients of one dtype; None if none fits, or one by chance."""
    digits, lows, highs = map(torch.cat, zip(*map(_factors, wrong), strict=True))
    low, high = float(lows.amax()), float(highs.amin())
    if not low <= high or low <= 0 <= high:
        return None
    indices = {digit: at for at, digit in enumerate(digits[:_SEEN].tolist()) if digit}
    first, *others = (highs - lows)[[*indices.values()]]
    factor = (low + high) / 2
    room = min(abs(factor) / 2, abs(factor - 1))
    chances = [float((first + width) / room) for width in others] if room else []
    if not chances or math.prod(min(1, each) for each in chances) > MAX_CHANCE:
        return None
    names = ", ".join(dict.fromkeys(repr(each.expected.spec.name) for each in wrong))
    text = f"every element of {names} is multiplied by one factor, about {factor:.3g}"
    return _Factor(low, high, text)


def _factors(wrong: _Unexplained) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the digits of each right element, and the least and the largest factor of it."""
    value = wrong.expected.value().reshape(-1)
    exact = wrong.observed.to(torch.float64).reshape(-1)
    info = torch.finfo(wrong.observed.dtype)
    ratio = exact / value
    # The sum is exact. A division and a product round.
    rounding = gamma(2, info.eps / 2) * ratio.abs()
    rounding += info.smallest_normal * info.eps / value.abs()
    any_factor = torch.where(exact == 0, math.inf, -math.inf)  # of a right element of 0
    low = torch.where(value == 0, -any_factor, ratio - rounding)
    high = torch.where(value == 0, any_factor, ratio + rounding)
    return torch.frexp(value).mantissa.abs(), low, high
