"""The mistakes that make a wrong norm or clip by one, found from squares of each rank's own parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

import torch

from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import (
    RELATIVE,
    axis_sets,
    multiple_of,
    simplest,
)
from syncverify.judge.whole_step.gradient_causes import (
    gradient_causes,
    grouped,
    not_a_number,
    scaled_by,
)
from syncverify.judge.whole_step.mesh_play import Known, Squares
from syncverify.judge.whole_step.mixtures import Explained
from syncverify.judge.whole_step.values import Quantity

# Relative difference up to which two norms count as equal.
_EQUAL = 1e-5
# Clipping adds this to the norm, and users' clipping adds something as small, or nothing.
_ADDED_TO_NORM = 1e-6
# Relative error of a norm that is computed from a coefficient, because of `_ADDED_TO_NORM`.
_RELATIVE_OF_NORM = 1e-5
# The gradients before clipping, by rank.
_RankGradients = Mapping[int, torch.Tensor | None]
_Pair = tuple[ComparedValue, causes.StepMistake]
ParameterNames = tuple[str, ...]
# A mistake, and the squared norm that it gives on each rank.
WrongSquares = tuple[causes.NormMistake, list[float]]
# What each mistake makes of the norms of ranks.
_JOINS: Final[Mapping[causes.Joined, Callable[[Sequence[float]], float]]] = {
    causes.Joined.MEAN: fmean,
    causes.Joined.ROOT_OF_MEAN: lambda norms: math.hypot(*norms) / len(norms) ** 0.5,
    causes.Joined.SUM: sum,
    causes.Joined.LARGEST: max,
}


def norm_cause(found: ComparedValue, known: Known) -> causes.StepMistake:
    """Return the mistake that explains a wrong norm on all ranks."""
    squares = known.play.squares(found.step)
    if (no_number := not_a_number(found, known)) is not None:
        return no_number
    norms = {
        rank: float(value) for rank, value in found.got.items() if value is not None
    }
    slack = found.relative_slack
    known_mistake = wrong_squares(norms, squares, RELATIVE + slack)
    if known_mistake is not None:
        return known_mistake
    expected = float(found.expected[found.wrong_ranks[0]])
    factors = {norm / expected for norm in norms.values()} if expected else set[float]()
    if factors and math.isclose(max(factors), min(factors), rel_tol=RELATIVE + slack):
        scaled: causes.Scaled = scaled_by(simplest(max(factors), slack), known)
        if scaled.axes or scaled.is_scale:
            return scaled
    return copy_cause(found, known.layout)


def wrong_squares(
    norms: Mapping[int, float], squares: Squares, relative: float = RELATIVE
) -> causes.NormMistake | None:
    """Return which squares are left out, or added wrongly, in the norms of the ranks."""
    found = [
        (max(_off(norms[r], math.sqrt(totals[r])) for r in norms), cause)
        for cause, totals in _mistakes(squares)
    ]
    closest = min((off for off, _ in found), default=math.inf)
    if closest > relative:
        return None
    # Of equal norms, the first is that of the simplest mistake.
    near = max(closest, min(relative, _EQUAL))
    return next(cause for off, cause in found if off <= near)


def _off(norm: float, other: float) -> float:
    largest = max(abs(norm), abs(other))
    return abs(norm - other) / largest if largest else 0.0


def _mistakes(squares: Squares) -> Iterator[WrongSquares]:
    """Yield mistakes, each with the squared norm that it gives on each rank."""
    classes, ranks = squares.classes(), squares.ranks
    right = {
        axes: [squares.total(rank, names, axes) for rank in ranks]
        for axes, names in classes.items()
    }
    for axes, names in classes.items():
        others = [
            sum(right[each][rank] for each in right if each != axes) for rank in ranks
        ]
        for cause, own in _of_class(squares, axes, names):
            yield cause, [a + b for a, b in zip(own, others, strict=True)]
    for over in axis_sets(squares.layout):
        split = [name for axes in classes if axes & over for name in classes[axes]]
        if split:
            totals = [
                sum(squares.total(r, classes[axes], axes - over) for axes in classes)
                for r in ranks
            ]
            yield causes.NormOf(tuple(split), over, is_missing=True), totals
            yield from _of_norms(squares, over, totals)


def _of_norms(
    squares: Squares, axes: frozenset[str], totals: Sequence[float]
) -> Iterator[WrongSquares]:
    """Yield mistakes that join the ranks' own norms over some axes, from the squares of these."""
    norms = [math.sqrt(each) for each in totals]
    groups = [squares.layout.group(rank, axes) for rank in squares.ranks]
    for how, join in _JOINS.items():
        joined = [join([norms[rank] for rank in group]) ** 2 for group in groups]
        yield causes.NormOfNorms(how, axes), joined


def _of_class(
    squares: Squares, axes: frozenset[str], names: ParameterNames
) -> Iterator[WrongSquares]:
    """Yield mistakes of the parameters that some axes split, with the squares of these alone."""

    def over(others: frozenset[str]) -> list[float]:
        return [squares.total(rank, names, others) for rank in squares.ranks]

    yield causes.NormWithout(names), [0.0 for _ in squares.ranks]
    for axis in squares.large_axes:
        yield causes.NormOf(names, frozenset({axis}), axis in axes), over(axes ^ {axis})
    for axis in (each for each in squares.large_axes if each in axes):
        first = squares.of_first_rank(names, axes, axis)
        yield causes.NormOfOneRank(names, frozenset({axis})), first
    if len(axes) > 1:
        yield causes.NormOf(names, axes, is_missing=True), over(frozenset())


def known_norm_mistake(
    squares: Squares, norms: Mapping[int, float], relative: float
) -> causes.NormMistake | None:
    """Return the mistake that gives wrong norms of gradients with known elements, by rank.

    Each element counts once, and groups of parameters may have one mistake.
    """
    for cause, totals in _mistakes_of_groups(squares):
        if all(
            math.isclose(norm, math.sqrt(max(totals[rank], 0.0)), rel_tol=relative)
            for rank, norm in norms.items()
        ):
            return cause
    return None


def _mistakes_of_groups(squares: Squares) -> Iterator[WrongSquares]:
    """Yield mistakes of groups of parameters, each with the squared norm that it gives on each rank."""
    every, large = squares.whole(squares.names), {*squares.large_axes}
    for names in _groups(squares):
        rest = every - squares.whole(names)
        if len(names) < len(squares.names):
            yield causes.NormWithout(names), [rest for _ in squares.ranks]
        for axis in squares.large_axes:
            for cause, parts in _of_group(squares, names, axis):
                yield cause, [rest + part for part in parts]
    split = tuple(n for n in squares.names if squares.split_over[n] & large)
    if split:
        axes = frozenset().union(*(squares.split_over[n] for n in split)) & large
        rest = every - squares.whole(split)
        own = [squares.total(r, split, frozenset()) for r in squares.ranks]
        yield causes.NormOf(split, axes, is_missing=True), [rest + each for each in own]


def _groups(squares: Squares) -> list[ParameterNames]:
    """Return parameters that one mistake may treat alike, the large groups first."""
    names, num_ranks = squares.names, len(squares.ranks)
    groups = [names]
    for axis in squares.large_axes:
        split = {name for name in names if axis in squares.split_over[name]}
        groups.append(tuple(n for n in names if n in split))
        groups.append(tuple(n for n in names if n not in split))
        groups.append(tuple(n for n in names if len(squares.held(n)) < num_ranks))
    words = [name.split(".")[-1] for name in names]
    for word in dict.fromkeys(words):
        groups += [tuple(n for n, own in zip(names, words, strict=True) if own == word)]
    groups += squares.classes().values()
    groups += [(name,) for name in names]
    return [*dict.fromkeys(each for each in groups if each)]


def _of_group(
    squares: Squares, names: ParameterNames, axis: str
) -> Iterator[WrongSquares]:
    """Yield mistakes of one axis, each with the squares that the parameters have in it."""
    axes, split_over, ranks = frozenset({axis}), squares.split_over, squares.ranks
    is_split = [axis in split_over[name] for name in names]
    is_everywhere = all(len(squares.held(n)) == len(ranks) for n in names)
    parts = [
        sum(squares.total(rank, [name], split_over[name] - axes) for name in names)
        for rank in ranks
    ]
    if all(is_split) and is_everywhere:
        yield causes.NormOf(names, axes, is_missing=True), parts
        first = [squares.of_first_rank([n], split_over[n], axis) for n in names]
        sums = [sum(each) for each in zip(*first, strict=True)]
        yield causes.NormOfOneRank(names, axes), sums
    elif is_everywhere and not any(is_split):
        whole = squares.whole(names) * squares.layout.size(axes)
        yield causes.NormOf(names, axes, is_missing=False), [whole for _ in ranks]
    elif not any(is_split):
        yield causes.NormOf(names, axes, is_missing=True), parts


def coefficient_of(norm: float, clip: float) -> float:
    """Return the number by which torch's clipping multiplies gradients."""
    return min(1.0, clip / (norm + _ADDED_TO_NORM))


def clip_causes(found: Sequence[ComparedValue], known: Known) -> list[Explained]:
    """Return the mistakes behind wrong gradients that the optimizer reads; each occurs once."""
    play, step = known.play, found[0].step
    clip = play.clip
    is_seen = play.clip_is_seen(step)
    plain = play.reference.tensors(Quantity.GRADIENT, step)

    def before_clip(found: ComparedValue) -> _RankGradients:
        if is_seen:
            return play.by_rank(Quantity.GRADIENT, step, found.name)
        value = plain.get(found.name)
        return {} if value is None else play.pieces(found, value)

    def with_norm(
        cause: causes.StepMistake, clipped: Sequence[ComparedValue], clip: float
    ) -> causes.StepMistake:
        """Return a coefficient with the mistake in the norm that gives it."""
        squares = play.squares(step)
        if not isinstance(cause, causes.OtherCoefficient):
            return cause
        coefficients = {
            rank: cause.coefficients.get(rank, cause.expected) for rank in squares.ranks
        }
        if any(not 0 < each < 1 for each in coefficients.values()):
            return cause
        norms = {rank: clip / each for rank, each in coefficients.items()}
        if not is_seen:  # the squares are those after clipping
            squares = squares.multiplied(lambda rank, _: 1 / coefficients[rank])
        slack = _RELATIVE_OF_NORM + max(each.relative_slack for each in clipped)
        return replace(cause, norm=wrong_squares(norms, squares, slack))

    lacking, clipped = list[_Pair](), list[_Pair]()
    others = list[ComparedValue]()
    for each in found:
        own = before_clip(each)
        if all(
            each.got[r] is None and own.get(r) is not None for r in each.wrong_ranks
        ):
            # The optimizer read no gradient on ranks that have one.
            lacking.append((each, causes.NotUpdated(tuple(each.wrong_ranks))))
        elif clip is not None and (cause := _clip_cause(each, own)) is not None:
            clipped.append((each, cause))
        else:
            others.append(each)
    explained = [
        (with_norm(cause, listed, clip), listed)
        for cause, listed in grouped(clipped)
        if clip is not None
    ]
    return [*grouped(lacking), *gradient_causes(others, known), *explained]


def _clip_cause(
    found: ComparedValue, before: _RankGradients
) -> causes.StepMistake | None:
    """Return how a gradient is clipped wrongly; None if clipping multiplies it by no number."""
    slack = found.slack
    read = [each for each in found.wrong_ranks if found.got[each] is not None]
    if not read:
        return None
    expected = multiple_of(found.expected[read[0]], before.get(read[0]), slack)
    got = {each: multiple_of(found.got[each], before.get(each), slack) for each in read}
    real = {each: factor for each, factor in got.items() if factor is not None}
    if expected is None or len(real) < len(got):
        return None
    # A rank without a gradient leaves the parameter to its owner, and clips as that rank does.
    if len({*real.values()}) == 1:
        real = dict.fromkeys(found.wrong_ranks, real[read[0]])
    if {*real.values()} == {expected}:  # rounded digits hide the difference
        return None
    if expected != 1 and {*real.values()} == {1.0}:
        return causes.NotClipped(expected)
    return causes.OtherCoefficient(real, expected)
