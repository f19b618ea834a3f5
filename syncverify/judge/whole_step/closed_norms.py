"""Norms of gradients with known elements, and the mistakes that give wrong norms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from syncverify.judge.whole_step.causes import (
    NormMistake,
    NormOf,
    NormOfOneRank,
    NormWithout,
)
from syncverify.judge.whole_step.norm_causes import Squares

ParameterNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownNorm:
    """The norm of all gradients, each part counted once.

    Attributes:
        squares: Squares of the gradients of each rank.
    """

    squares: Squares

    @property
    def norm(self) -> float:
        """The right norm."""
        return math.sqrt(self.whole(self.names))

    @property
    def names(self) -> ParameterNames:
        """The parameters that have a gradient."""
        return tuple(
            name
            for name in self.squares.split_over
            if any(each.get(name) for each in self.squares.by_rank)
        )

    def scaled(self, factors: Mapping[str, float]) -> KnownNorm:
        """Return the norm of gradients that are multiplied by a factor of each parameter."""
        by_rank = [
            {name: each * factors.get(name, 1.0) ** 2 for name, each in named.items()}
            for named in self.squares.by_rank
        ]
        return KnownNorm(replace(self.squares, by_rank=by_rank))

    def mistake(
        self, norms: Mapping[int, float], relative: float
    ) -> NormMistake | None:
        """Return the mistake that gives the wrong norms; None where none is known.

        Args:
            norms: Norm of each rank.
            relative: Relative difference that counts as rounding.
        """
        for cause, totals in self._mistakes():
            if all(
                math.isclose(norm, math.sqrt(max(totals[rank], 0.0)), rel_tol=relative)
                for rank, norm in norms.items()
            ):
                return cause
        return None

    @property
    def _ranks(self) -> range:
        return range(self.squares.layout.num_ranks)

    def _held(self, name: str) -> list[int]:
        return [rank for rank in self._ranks if name in self.squares.by_rank[rank]]

    def whole(self, names: Sequence[str]) -> float:
        """Return the squares of parameters, each element counted once."""
        split_over = self.squares.split_over
        return sum(
            self.squares.total(held[0], [name], split_over[name])
            for name in names
            if (held := self._held(name))
        )

    def _mistakes(self) -> Iterator[tuple[NormMistake, list[float]]]:
        """Yield mistakes, each with the squared norm that it gives on each rank."""
        every = self.whole(self.names)
        large = [name for name, size in self.squares.layout.axes if size > 1]
        for names in self._groups(large):
            rest = every - self.whole(names)
            if len(names) < len(self.names):
                yield NormWithout(names), [rest] * len(self._ranks)
            for axis in large:
                for cause, parts in self._over(names, axis):
                    yield cause, [rest + part for part in parts]
        split = tuple(n for n in self.names if self._split(n) & {*large})
        if split:
            axes = frozenset().union(*map(self._split, split)) & {*large}
            own = [self.squares.total(r, split, frozenset()) for r in self._ranks]
            rest = every - self.whole(split)
            yield NormOf(split, axes, is_missing=True), [rest + each for each in own]

    def _groups(self, large: Sequence[str]) -> list[ParameterNames]:
        """Return parameters that one mistake may treat alike, the large groups first."""
        groups = [self.names]
        for axis in large:
            divided = [axis in self._split(name) for name in self.names]
            groups += [self._where(divided), self._where([not e for e in divided])]
            held = [len(self._held(name)) == len(self._ranks) for name in self.names]
            groups.append(self._where([not each for each in held]))
        for word in dict.fromkeys(name.split(".")[-1] for name in self.names):
            groups.append(tuple(n for n in self.names if n.split(".")[-1] == word))
        groups += self.squares.classes().values()
        groups += [(name,) for name in self.names]
        return [*dict.fromkeys(each for each in groups if each)]

    def _where(self, chosen: Sequence[bool]) -> ParameterNames:
        return tuple(n for n, is_in in zip(self.names, chosen, strict=True) if is_in)

    def _split(self, name: str) -> frozenset[str]:
        return self.squares.split_over[name]

    def _over(
        self, names: ParameterNames, axis: str
    ) -> Iterator[tuple[NormMistake, list[float]]]:
        """Yield mistakes of one axis, each with the parts that parameters have in it."""
        axes = frozenset({axis})
        is_split = [axis in self._split(name) for name in names]
        is_everywhere = all(len(self._held(n)) == len(self._ranks) for n in names)
        if all(is_split) and is_everywhere:
            yield NormOf(names, axes, is_missing=True), self._parts(names, axes)
            yield NormOfOneRank(names, axes), self._first_parts(names, axis)
        elif is_everywhere and not any(is_split):
            size = self.squares.layout.size(axes)
            whole = self.whole(names) * size
            yield NormOf(names, axes, is_missing=False), [whole] * len(self._ranks)
        elif not any(is_split):
            yield NormOf(names, axes, is_missing=True), self._parts(names, axes)

    def _parts(self, names: ParameterNames, without: frozenset[str]) -> list[float]:
        return [
            sum(
                self.squares.total(rank, [name], self._split(name) - without)
                for name in names
            )
            for rank in self._ranks
        ]

    def _first_parts(self, names: ParameterNames, axis: str) -> list[float]:
        return [
            sum(
                self.squares.of_first_rank([name], self._split(name), axis)[rank]
                for name in names
            )
            for rank in self._ranks
        ]
