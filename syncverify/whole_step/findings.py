"""The mistakes behind the values that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from syncverify.whole_step.causes import (
    Decided,
    NotClipped,
    OtherCoefficient,
    RanksDiffer,
    StepMistake,
    Unexplained,
)
from syncverify.whole_step.differences import ComparedValue, OneRank, own_axes
from syncverify.whole_step.gradient_causes import Known, factor_of, gradient_cause
from syncverify.whole_step.norm_causes import Squares, norm_cause
from syncverify.whole_step.training import Training
from syncverify.whole_step.values import Quantity, RankValues


@dataclass(frozen=True, slots=True)
class WrongQuantity:
    """One mistake.

    Attributes:
        quantity: The first quantity of a step that it makes wrong.
        step: Number of the first step that it makes wrong, from 0.
        cause: The mistake.
        differences: The wrong values of this quantity and step.
        follows: Later quantities that are wrong as well, in the order of a step.
        num_values: Number of values of the quantity, right or wrong.
    """

    quantity: Quantity
    step: int
    cause: StepMistake
    differences: tuple[ComparedValue, ...]
    follows: tuple[Quantity, ...]
    num_values: int

    @property
    def names(self) -> frozenset[str]:
        """The names of the wrong values."""
        return frozenset(each.name for each in self.differences)

    @property
    def key(self) -> tuple[Quantity, str]:
        """What is equal for one mistake in two layouts."""
        return self.quantity, self.cause.word


def first_wrong(found: Iterable[ComparedValue]) -> list[ComparedValue]:
    """Return the differences of the first wrong quantity, since it makes later ones wrong."""
    listed = [*found]
    if not listed:
        return []
    first = listed[0]
    return [
        each
        for each in listed
        if (each.step, each.quantity) == (first.step, first.quantity)
    ]


def findings(
    found: Sequence[ComparedValue],
    ranks: Sequence[RankValues],
    reference: OneRank,
    training: Training,
    known: Known,
) -> list[WrongQuantity]:
    """Return the mistakes behind the values that differ.

    Args:
        found: All differences, in the order of the steps.
        ranks: Values of each rank.
        reference: Values of one rank.
        training: The training.
        known: What mistakes are looked for with.
    """
    first = first_wrong(found)
    by_cause = dict[StepMistake, list[ComparedValue]]()
    for each in first:
        cause = _cause(each, ranks, reference, training, known)
        by_cause.setdefault(cause, []).append(each)
    later = [each.quantity for each in found if each not in first]
    follows = tuple(each for each in Quantity if each in later)
    return [
        WrongQuantity(
            listed[0].quantity,
            listed[0].step,
            cause,
            tuple(listed),
            follows,
            len(reference.tensors(listed[0].quantity, listed[0].step)),
        )
        for cause, listed in by_cause.items()
    ]


def _cause(
    found: ComparedValue,
    ranks: Sequence[RankValues],
    reference: OneRank,
    training: Training,
    known: Known,
) -> StepMistake:
    match found.quantity:
        case Quantity.GRADIENT:
            return gradient_cause(found, known)
        case Quantity.NORM | Quantity.RETURNED if found.name == "norm":
            return norm_cause(
                found, squares_of(ranks, found.step, training, known), known
            )
        case Quantity.STEPPED:
            return _clip_cause(found, ranks, reference, known)
        case Quantity.SKIPPED:
            steps = next(iter(found.expected.values()))
            return Decided(tuple(found.wrong_ranks), int(steps))
    return _copy_cause(found)


def _copy_cause(found: ComparedValue) -> StepMistake:
    values = [*found.got.values()]
    first = values[0]
    are_alike = all(
        first is not None and each is not None and torch.equal(first, each)
        for each in values
    )
    return Unexplained() if are_alike else RanksDiffer(tuple(found.wrong_ranks))


def squares_of(
    ranks: Sequence[RankValues], step: int, training: Training, known: Known
) -> Squares:
    """Return the squares of the gradients of each rank in a step."""
    split_over = dict[str, frozenset[str]]()
    for each in ranks:
        split_over |= each.split_over
    split_over = {
        name: axes | {*own_axes(name, training.own)}
        for name, axes in split_over.items()
    }
    by_rank = [each.steps[step].local_squares for each in ranks]
    return Squares(known.layout, by_rank, split_over)


def _clip_cause(
    found: ComparedValue,
    ranks: Sequence[RankValues],
    reference: OneRank,
    known: Known,
) -> StepMistake:
    """Return the mistake between a right gradient and the one that the optimizer reads."""
    before = reference.tensors(Quantity.GRADIENT, found.step).get(found.name)
    coefficient = factor_of(found.expected[found.wrong_ranks[0]], before)
    coefficients = _coefficients(found, ranks)
    if coefficient is None or None in coefficients.values():
        return gradient_cause(found, known)
    real = {rank: each for rank, each in coefficients.items() if each is not None}
    if coefficient != 1 and {*real.values()} == {1.0}:
        return NotClipped(coefficient)
    return OtherCoefficient(real, coefficient)


def _coefficients(
    found: ComparedValue, ranks: Sequence[RankValues]
) -> Mapping[int, float | None]:
    """Return by what each wrong rank has multiplied its gradient."""
    return {
        rank: factor_of(
            found.got[rank],
            ranks[rank].steps[found.step].tensors[Quantity.GRADIENT].get(found.name),
        )
        for rank in found.wrong_ranks
    }
