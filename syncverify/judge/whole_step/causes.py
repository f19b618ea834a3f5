"""The causes of wrong values: typed facts, which `cause_words` puts into words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class StepMistake(Protocol):
    """Why a value is wrong. Two parameters with equal causes are one finding."""

    @property
    def word(self) -> str:
        """A short name of the kind of cause."""


@dataclass(frozen=True, slots=True)
class LacksSum:
    """Each rank has its own part; the sum over some axes is right.

    Attributes:
        factor: By how much that sum has to be multiplied to be right.
    """

    axes: frozenset[str]
    factor: float = 1.0
    word: str = field(default="lacks-sum", init=False)


@dataclass(frozen=True, slots=True)
class ReducedOver:
    """The gradients of the wrong ranks are added.

    Attributes:
        axes: Axes over which gradients are added.
        right: Axes over which they should be added.
        factor: By how much the sum is multiplied.
    """

    axes: frozenset[str]
    right: frozenset[str]
    factor: float = 1.0
    word: str = field(default="reduced-over", init=False)


@dataclass(frozen=True, slots=True)
class TermsWeighted:
    """The terms of the loss count by wrong factors.

    Attributes:
        factors: Wrong weight of each term divided by its right weight, by name.
        axes: Sets of axes whose number of ranks is the first wrong factor, or its reciprocal.
        is_number_of_parts: Whether that is the number of micro-batches, or its reciprocal.
    """

    factors: tuple[tuple[str, float], ...]
    axes: frozenset[frozenset[str]] = frozenset()
    is_number_of_parts: bool = False
    word: str = field(default="terms-weighted", init=False)


@dataclass(frozen=True, slots=True)
class Scaled:
    """All ranks have the right value times a factor.

    Attributes:
        axes: Sets of axes whose number of ranks is the factor, or its reciprocal.
        is_scale: Whether the factor is the scale of the loss, or its reciprocal.
        is_number_of_parts: Whether it is the number of micro-batches, or its reciprocal.
        rows: What else has this number, such as "rows of a rank"; or its reciprocal.
    """

    factor: float
    axes: frozenset[frozenset[str]] = frozenset()
    is_scale: bool = False
    is_number_of_parts: bool = False
    rows: tuple[str, ...] = ()
    word: str = field(default="scaled", init=False)


@dataclass(frozen=True, slots=True)
class RanksScaled:
    """Ranks have the right value times a factor of their own.

    Attributes:
        factors: Each wrong rank with its factor.
    """

    factors: tuple[tuple[int, float], ...]
    word: str = field(default="ranks-scaled", init=False)


@dataclass(frozen=True, slots=True)
class Missing:
    """Ranks have no gradient, or zeros, where one rank has values."""

    ranks: tuple[int, ...]
    word: str = field(default="missing", init=False)


@dataclass(frozen=True, slots=True)
class Weighted:
    """A sum of the parts of the batch, each with a wrong weight.

    Attributes:
        weights: Wrong weight of each part divided by its right weight.
        are_equal: Whether parts of different size have equal weights: a mean of means.
    """

    weights: tuple[float, ...]
    are_equal: bool
    word: str = field(default="weighted", init=False)


@dataclass(frozen=True, slots=True)
class MicroBatchesWeighted:
    """The micro-batches of each rank count by wrong factors.

    Attributes:
        factors: The factor of each one, 1 where it is right.
    """

    factors: tuple[float, ...]
    word: str = field(default="micro-batches-weighted", init=False)

    @property
    def is_repeated(self) -> bool:
        """Tell whether each micro-batch multiplies all that was added before by one factor."""
        if 0 in self.factors:
            return False
        first, *others = (b / a for a, b in itertools.pairwise(self.factors))
        return all(math.isclose(each, first, rel_tol=1e-6) for each in others)


@dataclass(frozen=True, slots=True)
class AddedBias:
    """Each rank of some axes adds biases to its part of a sum, so that they count once a rank.

    Attributes:
        names: The biases.
    """

    names: tuple[str, ...]
    axes: frozenset[str]
    word: str = field(default="added-bias", init=False)


@dataclass(frozen=True, slots=True)
class OwnParts:
    """A sum over the ranks' own parts of the batch, where the right gradient is no such sum.

    A batch norm uses the statistics of a rank's own rows, and a contrastive loss compares them.
    """

    word: str = field(default="own-parts", init=False)


@dataclass(frozen=True, slots=True)
class NotCleared:
    """The gradient of the step before is still in it."""

    word: str = field(default="not-cleared", init=False)


@dataclass(frozen=True, slots=True)
class NotANumber:
    """Ranks have NaN or infinity where one rank has numbers, or the other way round."""

    ranks: tuple[int, ...]
    word: str = field(default="not-a-number", init=False)


@dataclass(frozen=True, slots=True)
class CopiesRoundedApart:
    """Copies of one value are right within rounding, and differ between ranks.

    Attributes:
        ranks: The ranks that have the copies.
    """

    ranks: tuple[int, ...]
    axes: frozenset[str] = frozenset()
    word: str = field(default="copies-rounded-apart", init=False)


@dataclass(frozen=True, slots=True)
class RanksDiffer:
    """Copies of one value differ between ranks.

    Attributes:
        ranks: The ranks whose copy is wrong.
        are_copies: Whether these are copies; otherwise each rank has a shard, and those are off
            by different amounts.
    """

    ranks: tuple[int, ...]
    axes: frozenset[str] = frozenset()
    are_copies: bool = True
    word: str = field(default="ranks-differ", init=False)


@dataclass(frozen=True, slots=True)
class NormOf:
    """The norm leaves gradients out, or counts some twice.

    Attributes:
        axes: Axes over which their squares are not added, or counted once a rank.
        is_missing: Whether the sum over the axes is missing; otherwise it is one too many.
    """

    names: tuple[str, ...]
    axes: frozenset[str]
    is_missing: bool
    word: str = field(default="norm", init=False)


@dataclass(frozen=True, slots=True)
class NormOfOneRank:
    """The norm counts the parts of one rank alone of gradients that ranks split.

    Attributes:
        axes: Axes that split them.
    """

    names: tuple[str, ...]
    axes: frozenset[str]
    word: str = field(default="norm-of-one-rank", init=False)


@dataclass(frozen=True, slots=True)
class NormWithout:
    """The norm leaves out some parameters.

    Attributes:
        names: The parameters.
    """

    names: tuple[str, ...]
    word: str = field(default="norm-without", init=False)


NormMistake = NormOf | NormOfOneRank | NormWithout


@dataclass(frozen=True, slots=True)
class NotClipped:
    """The norm is right, and its coefficient is not applied.

    Attributes:
        coefficient: Number by which the gradients should have been multiplied.
    """

    coefficient: float
    word: str = field(default="not-clipped", init=False)


@dataclass(frozen=True, slots=True)
class OtherCoefficient:
    """Ranks multiply gradients by another coefficient.

    Attributes:
        coefficients: Coefficient of each such rank.
        expected: The coefficient of one rank.
        norm: The mistake in the norm that gives these coefficients, where one is known.
    """

    coefficients: Mapping[int, float] = field(hash=False)
    expected: float
    norm: NormMistake | None = None

    @property
    def word(self) -> str:
        """A short name; one with a known norm is another kind of cause."""
        return "other-coefficient" if self.norm is None else "coefficient-of-a-norm"


@dataclass(frozen=True, slots=True)
class NotUpdated:
    """The optimizer does not have parameters, or leaves them as they were.

    Attributes:
        ranks: The ranks whose copy is not updated.
    """

    ranks: tuple[int, ...]
    word: str = field(default="not-updated", init=False)


@dataclass(frozen=True, slots=True)
class OtherlyFrozen:
    """Ranks train a parameter that one rank freezes, or the other way round.

    Attributes:
        are_frozen: Whether these ranks freeze it, and one rank trains it.
    """

    ranks: tuple[int, ...]
    are_frozen: bool
    word: str = field(default="otherly-frozen", init=False)


@dataclass(frozen=True, slots=True)
class OtherOption:
    """An option of the optimizers on the mesh differs from that of the optimizer on one rank.

    Attributes:
        name: Name of the option.
        value: Its value on the first wrong rank.
        expected: Its value on one rank.
        axes: Sets of axes whose number of ranks is one value divided by the other.
        is_left: Whether a schedule changes it on one rank, and the own step takes no `schedule`.
    """

    name: str
    value: object
    expected: object
    axes: frozenset[frozenset[str]] = frozenset()
    is_left: bool = False
    word: str = field(default="other-option", init=False)


@dataclass(frozen=True, slots=True)
class Clamped:
    """Each element is right, or cut off at a limit.

    Attributes:
        limit: The limit.
    """

    limit: float
    word: str = field(default="clamped", init=False)


@dataclass(frozen=True, slots=True)
class Decided:
    """Ranks make another number of optimizer steps.

    Attributes:
        expected: Number of steps on one rank.
    """

    ranks: tuple[int, ...]
    expected: int
    word: str = field(default="decided", init=False)


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """A value after loading is that of a new training."""

    word: str = field(default="not-loaded", init=False)


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The parts of a loaded tensor are at wrong places, or some are there several times.

    Attributes:
        order: Index of the right part that is found at each place.
    """

    order: tuple[int, ...]
    word: str = field(default="misplaced", init=False)

    @property
    def is_one_part(self) -> bool:
        """Tell whether all places have the same part."""
        return len({*self.order}) == 1


@dataclass(frozen=True, slots=True)
class NotContinued:
    """All that was compared after loading is right, and the steps after it are not.

    Attributes:
        is_all_compared: Whether no optimizer has tensors of its own, whose state has no right value.
    """

    is_all_compared: bool = True
    word: str = field(default="not-continued", init=False)


@dataclass(frozen=True, slots=True)
class Unexplained:
    """None of the known mistakes gives these values."""

    word: str = field(default="unexplained", init=False)
