"""The mistake that makes a wrong norm, found from the squares of each rank's own parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from syncverify.judge.whole_step.causes import (
    NormMistake,
    NormOf,
    NormOfOneRank,
    NormWithout,
    Scaled,
    StepMistake,
)
from syncverify.judge.whole_step.copies import copy_cause
from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.factors import RELATIVE, simplest
from syncverify.judge.whole_step.gradient_causes import not_a_number, scaled_by
from syncverify.judge.whole_step.known import Known
from syncverify.judge.whole_step.layout import Layout

# Relative difference up to which two norms count as equal.
_EQUAL = 1e-5
# Names of parameters, by the axes over which they are split.
Classes = Mapping[frozenset[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Squares:
    """Squares of the gradients of each rank.

    Attributes:
        by_rank: Sum of the squares of a rank's part of each gradient, by name.
    """

    layout: Layout
    by_rank: Sequence[Mapping[str, float]]
    split_over: Mapping[str, frozenset[str]]

    def classes(self) -> Classes:
        """Return the parameters by the axes that split them."""
        named = dict[frozenset[str], list[str]]()
        for name, axes in self.split_over.items():
            large = frozenset(each for each in axes if self.layout.size([each]) > 1)
            named.setdefault(large, []).append(name)
        return {axes: tuple(names) for axes, names in named.items()}

    def total(self, rank: int, names: Sequence[str], axes: frozenset[str]) -> float:
        """Return the sum of some parameters' squares over the ranks of some axes."""
        return sum(
            self.by_rank[other].get(name, 0.0)
            for other in self.layout.group(rank, axes)
            for name in names
        )

    def of_first_rank(
        self, names: Sequence[str], axes: frozenset[str], axis: str
    ) -> list[float]:
        """Return, for each rank, some parameters' squares on the first rank of an axis."""
        return [
            self.total(self.layout.group(rank, {axis})[0], names, axes - {axis})
            for rank in range(self.layout.num_ranks)
        ]

    def divided(self, factors: Mapping[int, float]) -> Squares:
        """Return the squares of gradients that are divided by a factor of each rank."""
        by_rank = [
            {name: square / factors[rank] ** 2 for name, square in named.items()}
            for rank, named in enumerate(self.by_rank)
        ]
        return Squares(self.layout, by_rank, self.split_over)

    def own_norm(self, rank: int) -> float:
        """Return the norm of the gradients that a rank has, with the shards of others."""
        return math.sqrt(
            sum(self.total(rank, names, axes) for axes, names in self.classes().items())
        )


def norm_cause(found: ComparedValue, squares: Squares, known: Known) -> StepMistake:
    """Return the mistake that explains a wrong norm on all ranks."""
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
        scaled: Scaled = scaled_by(simplest(max(factors), slack), known)
        if scaled.axes or scaled.is_scale:
            return scaled
    return copy_cause(found, known.layout)


def wrong_squares(
    norms: Mapping[int, float], squares: Squares, relative: float = RELATIVE
) -> NormMistake | None:
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


def _mistakes(squares: Squares) -> Iterator[tuple[NormMistake, list[float]]]:
    """Yield mistakes, each with the squared norm that it gives on each rank."""
    classes = squares.classes()
    ranks = range(squares.layout.num_ranks)
    right = {
        axes: [squares.total(rank, names, axes) for rank in ranks]
        for axes, names in classes.items()
    }
    large = [name for name, size in squares.layout.axes if size > 1]
    for axes, names in classes.items():
        others = [
            sum(right[each][rank] for each in right if each != axes) for rank in ranks
        ]
        yield NormWithout(names), others
        for axis in large:
            without = axes - {axis} if axis in axes else axes | {axis}
            own = [squares.total(rank, names, without) for rank in ranks]
            cause = NormOf(names, frozenset({axis}), axis in axes)
            yield cause, [a + b for a, b in zip(own, others, strict=True)]
        for axis in (each for each in large if each in axes):
            first = squares.of_first_rank(names, axes, axis)
            totals = [a + b for a, b in zip(first, others, strict=True)]
            yield NormOfOneRank(names, frozenset({axis})), totals
        if len(axes) > 1:
            own = [squares.total(rank, names, frozenset()) for rank in ranks]
            yield (
                NormOf(names, axes, is_missing=True),
                [a + b for a, b in zip(own, others, strict=True)],
            )
    yield from _of_all(squares, classes)


def _of_all(squares: Squares, classes: Classes) -> Iterator[tuple[NormOf, list[float]]]:
    """Yield mistakes of all parameters that are split over an axis."""
    for axis in (name for name, size in squares.layout.axes if size > 1):
        names = [
            name for axes, each in classes.items() if axis in axes for name in each
        ]
        if not names:
            continue
        cause = NormOf(tuple(names), frozenset({axis}), is_missing=True)
        yield (
            cause,
            [
                sum(
                    squares.total(rank, each, axes - {axis})
                    for axes, each in classes.items()
                )
                for rank in range(squares.layout.num_ranks)
            ],
        )
