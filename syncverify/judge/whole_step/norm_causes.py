"""The mistakes that make a wrong norm or clip by one, found from squares of each rank's own parts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

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
from syncverify.judge.whole_step.mesh_play import Known, MeshPlay, Squares
from syncverify.judge.whole_step.mixtures import Explained
from syncverify.judge.whole_step.values import ByRank, Quantity

_EQUAL = 1e-5  # relative difference up to which two norms count as equal
# Clipping adds this to the norm, and users' clipping adds something as small, or nothing.
_ADDED_TO_NORM = 1e-6
# Relative error of a norm that is computed from a coefficient, because of `_ADDED_TO_NORM`.
_RELATIVE_OF_NORM = 1e-5
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
    norms = {r: float(value) for r, value in found.got.items() if value is not None}
    slack = found.relative_slack
    mistake = wrong_squares(norms, squares, RELATIVE + slack)
    if mistake is not None:
        return mistake
    expected = float(found.expected[found.wrong_ranks[0]])
    factors = [norm / expected for norm in norms.values()] if expected else []
    if factors and math.isclose(max(factors), min(factors), rel_tol=RELATIVE + slack):
        scaled = scaled_by(simplest(max(factors), slack), known)
        if scaled.axes or scaled.is_scale:
            return scaled
    return copy_cause(found, known.layout)


def wrong_squares(
    norms: Mapping[int, float],
    squares: Squares,
    relative: float = RELATIVE,
    groups: Sequence[ParameterNames] = (),
) -> causes.NormMistake | None:
    """Return which squares are left out, or added wrongly, in the norms of the ranks.

    One mistake treats a group of parameters alike; by default, those that the same axes split.
    """
    groups = groups or [*squares.classes().values()]
    found = [
        (max(_off(norm, totals[r]) for r, norm in norms.items()), cause)
        for cause, totals in _mistakes(squares, groups)
    ]
    closest = min((off for off, _ in found), default=math.inf)
    if closest > relative:
        return None
    # Of equal norms, the first is that of the simplest mistake.
    near = max(closest, min(relative, _EQUAL))
    return next(cause for off, cause in found if off <= near)


def _off(norm: float, square: float) -> float:
    """Return the relative difference of a norm and a squared one, which noise may make negative."""
    other = math.sqrt(max(square, 0.0))
    largest = max(abs(norm), other)
    return abs(norm - other) / largest if largest else 0.0


def _mistakes(
    squares: Squares, groups: Sequence[ParameterNames]
) -> Iterator[WrongSquares]:
    """Yield mistakes, each with the squared norm that it gives on each rank."""
    every = squares.whole(squares.names)
    for names in groups:
        rest = every - squares.whole(names)
        yield causes.NormWithout(names), [rest for _ in squares.ranks]
        for axes in axis_sets(squares.layout):
            for cause, parts in _of_group(squares, names, axes):
                yield cause, [rest + part for part in parts]
    for over in axis_sets(squares.layout):
        split = tuple(n for n in squares.names if squares.split_over[n] & over)
        if split:
            rest = every - squares.whole(split)
            totals = [rest + part for part in squares.own_parts(split, over)]
            yield causes.NormOf(split, over, is_missing=True), totals
            # The ranks' own norms, joined over the axes.
            norms = [math.sqrt(max(each, 0.0)) for each in totals]
            beside = [squares.layout.group(rank, over) for rank in squares.ranks]
            for how, join in _JOINS.items():
                joined = [join([norms[r] for r in group]) ** 2 for group in beside]
                yield causes.NormOfNorms(how, over), joined


def groups_of(squares: Squares) -> list[ParameterNames]:
    """Return parameters that one mistake may treat alike, the large groups first."""
    names, num_ranks = squares.names, len(squares.ranks)
    groups = [names]
    for axis in squares.layout.large_axes:
        groups.append(tuple(n for n in names if axis in squares.split_over[n]))
        groups.append(tuple(n for n in names if axis not in squares.split_over[n]))
        groups.append(tuple(n for n in names if len(squares.held(n)) < num_ranks))
    by_word = dict[str, ParameterNames]()
    for name in names:
        word = name.split(".")[-1]
        by_word[word] = (*by_word.get(word, ()), name)
    groups += [*by_word.values(), *squares.classes().values()]
    groups += [(name,) for name in names]
    return [*dict.fromkeys(each for each in groups if each)]


def _of_group(
    squares: Squares, names: ParameterNames, axes: frozenset[str]
) -> Iterator[WrongSquares]:
    """Yield mistakes over some axes, each with the squares that the parameters have in it."""
    split_over, ranks = [squares.split_over[name] for name in names], squares.ranks
    are_whole = not any(axes & each for each in split_over)
    is_everywhere = {len(squares.held(n)) for n in names} <= {0, len(ranks)}
    parts = squares.own_parts(names, axes)
    if is_everywhere and all(axes <= each for each in split_over):
        yield causes.NormOf(names, axes, is_missing=True), parts
        first = [parts[squares.layout.group(rank, axes)[0]] for rank in ranks]
        yield causes.NormOfOneRank(names, axes), first
    elif is_everywhere and are_whole:
        whole = squares.whole(names) * squares.layout.size(axes)
        yield causes.NormOf(names, axes, is_missing=False), [whole for _ in ranks]
    elif are_whole:
        yield causes.NormOf(names, axes, is_missing=True), parts


def coefficient_of(norm: float, clip: float) -> float:
    """Return the number by which torch's clipping multiplies gradients."""
    return min(1.0, clip / (norm + _ADDED_TO_NORM))


def clip_causes(found: Sequence[ComparedValue], known: Known) -> list[Explained]:
    """Return the mistakes behind wrong gradients that the optimizer reads; each occurs once."""
    play, step = known.play, found[0].step
    is_seen = play.clip_is_seen(step)
    plain = play.reference.tensors(Quantity.GRADIENT, step)
    lacking, clipped = list[_Pair](), list[_Pair]()
    others = list[ComparedValue]()
    for each in found:
        own: ByRank = {}  # before clipping
        if is_seen:
            own = play.by_rank(Quantity.GRADIENT, step, each.name)
        elif (value := plain.get(each.name)) is not None:
            own = play.pieces(each, value)
        wrong = each.wrong_ranks
        if all(each.got[r] is None and own.get(r) is not None for r in wrong):
            # The optimizer read no gradient on ranks that have one.
            lacking.append((each, causes.NotUpdated(tuple(wrong))))
        elif play.clip is not None and (cause := _clip_cause(each, own)) is not None:
            clipped.append((each, cause))
        else:
            others.append(each)
    explained = [
        (_with_norm(cause, listed, play), listed) for cause, listed in grouped(clipped)
    ]
    return [*grouped(lacking), *gradient_causes(others, known), *explained]


def _with_norm(
    cause: causes.StepMistake, clipped: Sequence[ComparedValue], play: MeshPlay
) -> causes.StepMistake:
    """Return a coefficient with the mistake in the norm that gives it."""
    if not isinstance(cause, causes.OtherCoefficient) or play.clip is None:
        return cause
    step = clipped[0].step
    squares = play.squares(step)
    used = [cause.coefficients.get(rank, cause.expected) for rank in squares.ranks]
    if any(not 0 < each < 1 for each in used):
        return cause
    norms = {rank: play.clip / each for rank, each in enumerate(used)}
    if not play.clip_is_seen(step):  # the squares are those after clipping
        squares = squares.multiplied(lambda rank, _: 1 / used[rank])
    slack = _RELATIVE_OF_NORM + max(each.relative_slack for each in clipped)
    return replace(cause, norm=wrong_squares(norms, squares, slack))


def _clip_cause(found: ComparedValue, before: ByRank) -> causes.StepMistake | None:
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
