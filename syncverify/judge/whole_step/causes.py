"""The causes of wrong values of a training: typed facts; `judge/causes/` has their words."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from typing_extensions import override

from syncverify.judge.whole_step.differences import ComparedValue
from syncverify.judge.whole_step.values import Quantity
from syncverify.trace.source_lines import SourceLine

# Sets of axes whose number of ranks is the first wrong factor, or its reciprocal.
AxesOfFactor = frozenset[frozenset[str]]


@dataclass(frozen=True, slots=True)
class StepMistake:
    """Why a value is wrong. Two parameters with equal causes are one finding."""

    is_of_training: ClassVar = True
    row: ClassVar[str] = ""  # the row of a cause that a scenario may have too

    @property
    def kind(self) -> str:
        """Name of its row in the table of causes: `row`, or `not_clipped` of `NotClipped`."""
        return self.row or re.sub("(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()


@dataclass(frozen=True, slots=True)
class _OnRanks(StepMistake):
    """Values of some ranks are wrong."""

    ranks: tuple[int, ...]  # with the wrong values


@dataclass(frozen=True, slots=True)
class LacksSum(StepMistake):
    """Each rank has its own part; the sum over some axes is right."""

    row: ClassVar = "rank_contribution_missing"
    axes: frozenset[str]
    factor: float = 1.0  # by how much that sum has to be multiplied to be right


@dataclass(frozen=True, slots=True)
class ReducedOver(StepMistake):
    """The gradients of the wrong ranks are added."""

    row: ClassVar = "foreign_contribution"
    axes: frozenset[str]  # axes over which gradients are added
    right: frozenset[str]  # axes over which they should be added
    factor: float = 1.0  # by how much the sum is multiplied


@dataclass(frozen=True, slots=True)
class TermsWeighted(StepMistake):
    """The terms of the loss count by wrong factors."""

    # Wrong weight of each term divided by its right weight, by name.
    factors: tuple[tuple[str, float], ...]
    axes: AxesOfFactor = frozenset()
    # Whether that is the number of micro-batches, or its reciprocal.
    is_number_of_parts: bool = False


@dataclass(frozen=True, slots=True)
class UsesWeighted(StepMistake):
    """The uses of a parameter in the forward pass count by wrong factors in its gradient."""

    # Of each use, in the order of the forward; 1 where it is right.
    factors: tuple[float, ...]
    axes: AxesOfFactor = frozenset()
    # Lines of the uses that count wrongly, of the first parameter.
    lines: tuple[SourceLine, ...] = ()

    @property
    def factor(self) -> float:
        """The first wrong factor."""
        return next((each for each in self.factors if each != 1), 1.0)


# Names of right gradients that add up to a gradient, with the factor of each.
SumOfRight = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class MixedUp(StepMistake):
    """Gradients have the right ones of other parameters in their place, or added to them."""

    sums: tuple[tuple[str, SumOfRight], ...]  # of each wrong gradient; empty for zeros


@dataclass(frozen=True, slots=True)
class Scaled(StepMistake):
    """All ranks have the right value times a factor."""

    factor: float
    axes: AxesOfFactor = frozenset()
    # Whether the factor is the scale of the loss, or its reciprocal.
    is_scale: bool = False
    # Whether it is the number of micro-batches, or its reciprocal.
    is_number_of_parts: bool = False
    # What else has this number, such as "rows of a rank"; or its reciprocal.
    rows: tuple[str, ...] = ()

    @property
    def is_larger(self) -> bool:
        """Tell whether it is multiplied, and not divided."""
        return self.factor > 1

    @property
    def is_scale_kept(self) -> bool:
        """Tell whether nothing divides by the scale of the loss."""
        return self.is_scale and self.is_larger

    @property
    def is_number(self) -> bool:
        """Tell whether one known number alone multiplies it."""
        count = len(self.axes) + len(self.rows) + self.is_number_of_parts
        return self.is_larger and count == 1


@dataclass(frozen=True, slots=True)
class RanksScaled(StepMistake):
    """Ranks have the right value times a factor of their own."""

    factors: tuple[tuple[int, float], ...]  # each wrong rank with its factor


class Missing(_OnRanks):
    """Ranks have no gradient, or zeros, where one rank has values."""

    row: ClassVar = "gradient_missing"


@dataclass(frozen=True, slots=True)
class Weighted(StepMistake):
    """A sum of the parts of the batch, each with a wrong weight."""

    weights: tuple[float, ...]  # wrong weight of each part divided by its right weight
    # Whether parts of different size have equal weights: a mean of means.
    are_equal: bool


@dataclass(frozen=True, slots=True)
class MicroBatchesWeighted(StepMistake):
    """The micro-batches of each rank count by wrong factors."""

    factors: tuple[float, ...]  # the factor of each one, 1 where it is right

    @property
    @override
    def kind(self) -> str:
        return "micro_batch_missing" if 0 in self.factors else "micro_batches_weighted"

    @property
    def is_repeated(self) -> bool:
        """Tell whether each micro-batch multiplies all that was added before by one factor."""
        if 0 in self.factors:
            return False
        first, *others = (b / a for a, b in itertools.pairwise(self.factors))
        return all(math.isclose(each, first, rel_tol=1e-6) for each in others)


@dataclass(frozen=True, slots=True)
class AddedBias(StepMistake):
    """Each rank of some axes adds biases to its part of a sum, so that they count once a rank."""

    names: tuple[str, ...]
    axes: frozenset[str]


class OwnParts(StepMistake):
    """A sum over the ranks' own parts of the batch, where the right gradient is no such sum.

    A batch norm uses the statistics of a rank's own rows, and a contrastive loss compares them.
    """


class NotCleared(StepMistake):
    """The gradient of the step before is still in it."""

    row: ClassVar = "stale"


class NotANumber(_OnRanks):
    """Ranks have NaN or infinity where one rank has numbers, or the other way round."""


@dataclass(frozen=True, slots=True)
class CopiesRoundedApart(_OnRanks):
    """Copies of one value are right within rounding, and differ between ranks."""

    axes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RanksDiffer(_OnRanks):
    """Copies of one value differ between ranks."""

    axes: frozenset[str]


@dataclass(frozen=True, slots=True)
class NormOf(StepMistake):
    """The norm leaves gradients out, or counts some twice."""

    row: ClassVar = "norm"
    names: tuple[str, ...]
    # Axes over which their squares are not added, or counted once a rank.
    axes: frozenset[str]
    # Whether the sum over the axes is missing; otherwise it is one too many.
    is_missing: bool


@dataclass(frozen=True, slots=True)
class NormOfOneRank(StepMistake):
    """The norm counts the parts of one rank alone of gradients that ranks split."""

    names: tuple[str, ...]
    axes: frozenset[str]  # axes that split them


@dataclass(frozen=True, slots=True)
class NormWithout(StepMistake):
    """The norm leaves out some parameters."""

    names: tuple[str, ...]


class Joined(StrEnum):
    """What is made of the norms of ranks in place of the root of the sum of their squares."""

    MEAN = "the mean of the ranks' own norms"
    ROOT_OF_MEAN = "the root of the mean of the ranks' own squares"
    SUM = "the sum of the ranks' own norms"
    LARGEST = "the largest of the ranks' own norms"


@dataclass(frozen=True, slots=True)
class NormOfNorms(StepMistake):
    """The norm is made of the norms that ranks have of their own parts."""

    how: Joined
    axes: frozenset[str]  # axes over whose ranks


NormMistake = NormOf | NormOfOneRank | NormWithout | NormOfNorms


@dataclass(frozen=True, slots=True)
class NotClipped(StepMistake):
    """The norm is right, and its coefficient is not applied."""

    coefficient: float  # number by which the gradients should have been multiplied


@dataclass(frozen=True, slots=True)
class OtherCoefficient(StepMistake):
    """Ranks multiply gradients by another coefficient."""

    # Coefficient of each such rank.
    coefficients: Mapping[int, float] = field(hash=False)
    expected: float  # the coefficient of one rank
    # The mistake in the norm that gives these coefficients, where one is known.
    norm: NormMistake | None = None

    @property
    @override
    def kind(self) -> str:
        return "other_coefficient" if self.norm is None else "coefficient_of_a_norm"


class NotUpdated(_OnRanks):
    """The optimizer does not have parameters, or leaves them as they were."""


@dataclass(frozen=True, slots=True)
class OtherlyFrozen(_OnRanks):
    """Ranks train a parameter that one rank freezes, or the other way round."""

    are_frozen: bool  # whether these ranks freeze it, and one rank trains it


@dataclass(frozen=True, slots=True)
class OtherOption(StepMistake):
    """An option of the optimizers on the mesh differs from that of the optimizer on one rank."""

    name: str
    value: object  # its value on the first wrong rank
    expected: object  # its value on one rank
    axes: AxesOfFactor = frozenset()
    # Whether a schedule changes it on one rank, and the own step takes no `schedule`.
    is_left: bool = False


@dataclass(frozen=True, slots=True)
class Clamped(StepMistake):
    """Each element is right, or cut off at a limit."""

    limit: float


@dataclass(frozen=True, slots=True)
class Decided(_OnRanks):
    """Ranks make another number of optimizer steps."""

    expected: int  # number of steps on one rank


class NotLoaded(StepMistake):
    """A value after loading is that of a new training."""


@dataclass(frozen=True, slots=True)
class Misplaced(StepMistake):
    """The parts of a loaded tensor are at wrong places, or some are there several times."""

    row: ClassVar = "parts_misplaced"
    order: tuple[int, ...]  # index of the right part that is found at each place

    @property
    def is_one_part(self) -> bool:
        """Tell whether all places have the same part."""
        return len({*self.order}) == 1


@dataclass(frozen=True, slots=True)
class NotContinued(StepMistake):
    """All that was compared after loading is right, and the steps after it are not."""

    # Whether no optimizer has tensors of its own, whose state has no right value.
    is_all_compared: bool = True


@dataclass(frozen=True, slots=True)
class Unexplained(StepMistake):
    """None of the known mistakes gives these values."""

    # Axes over which shards are off by other amounts.
    axes: frozenset[str] = frozenset()
    # Autograd functions of the program whose backward likely gives them, with their lines.
    functions: tuple[tuple[str, tuple[SourceLine, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class WrongQuantity:
    """One mistake."""

    quantity: Quantity  # the first quantity of a step that it makes wrong
    step: int  # number of the first step that it makes wrong, from 0
    cause: StepMistake
    differences: tuple[ComparedValue, ...]  # the wrong values of this quantity and step
    num_values: int
    # Later quantities that are wrong as well, in the order of a step; the first mistake of a
    # training has them all.
    follows: tuple[Quantity, ...] = ()
    # Values of the same quantity and step that are wrong because of it, since a wrong gradient
    # flows back to earlier layers, or into a norm.
    spread: tuple[ComparedValue, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of the wrong values."""
        return frozenset(each.name for each in self.differences)

    def is_same(self, other: Self) -> bool:
        """Tell whether another finding, of another layout or step, is this mistake."""
        kinds = (self.quantity, self.cause.kind)
        are_alike = kinds == (other.quantity, other.cause.kind)
        return are_alike and not self.names.isdisjoint(other.names)
