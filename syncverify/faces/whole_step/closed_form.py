"""A step with gradients of all ones: its norm is the root of the number of elements.

Nothing else is compared with, so a norm is found that is wrong on one rank as well, and the norm
of gradients that the user's data leaves at zero.

Note [Small, own and large numbers]

Each element is one very small number in the place of 1, so that clipping leaves gradients as they
are. The gradients that the optimizer reads are linear in it. If the norm is wrong, a second play
gives each parameter another number: it tells parameters of one size apart. If the norm is right,
and a largest norm is known, a play with large numbers shows the coefficient of clipping.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch

from syncverify.faces.whole_step.data import AllOnes
from syncverify.faces.whole_step.outcome import LayoutPlay, worst_errors
from syncverify.faces.whole_step.playing import beside, play_on, ranks_of
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.causes import (
    NormMistake,
    NotCleared,
    NotClipped,
    OtherCoefficient,
    Scaled,
    StepMistake,
    Unexplained,
    WrongQuantity,
)
from syncverify.judge.whole_step.differences import ComparedValue, OneRank
from syncverify.judge.whole_step.factors import RELATIVE, rounded
from syncverify.judge.whole_step.gradient_causes import grouped
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.mesh_play import MeshPlay, Squares
from syncverify.judge.whole_step.norm_causes import (
    coefficient_of,
    groups_of,
    wrong_squares,
)
from syncverify.judge.whole_step.values import Quantity

# As a multiple of the unit roundoff: norms of right steps differ by far less.
_ROUNDINGS: Final = 64.0
# Gradients so small that no usual bound clips their norm, even times the scale of a loss.
_SMALL: Final = AllOnes(2.0**-40)
_SMALL_AND_DISTINCT: Final = AllOnes(2.0**-40, are_distinct=True)
# As a multiple of the largest norm: so large that each norm is clipped.
_LARGE: Final = 2.0**20
# Relative error of a coefficient: clipping adds 1e-6 to the norm, or something as small, or nothing.
_RELATIVE_OF_COEFFICIENTS: Final = 1e-5


@dataclass(frozen=True, slots=True)
class ConstantPlay:
    """A step on a mesh, with gradients of one number each."""

    training: Training
    play: MeshPlay  # its reference has different gradients

    @property
    def relative(self) -> float:
        """Relative difference of a norm that counts as rounding."""
        return max(RELATIVE, _ROUNDINGS * torch.finfo(self.training.dtype).eps)

    @property
    def norms(self) -> dict[int, float]:
        """The norms that ranks return, or give to torch's clipping."""
        found = dict[int, float]()
        for rank, each in enumerate(self.play.ranks):
            tensors = each.steps[0].tensors
            for quantity in (Quantity.RETURNED, Quantity.NORM):
                if (value := tensors[quantity].get("norm")) is not None:
                    found[rank] = float(value)
        return found

    @property
    def scale(self) -> float:
        """The scale of the loss; 1 without a scaler."""
        value = self.play.ranks[0].steps[0].tensors.get(Quantity.SCALE, {}).get("scale")
        return 1.0 if value is None else float(value)

    def read(self, name: str, step: int = 0) -> dict[int, float | None]:
        """Return the number that the optimizer of each rank reads in a gradient, of ranks that have it.

        None where it has several.
        """
        found = self.play.by_rank(Quantity.STEPPED, step, name)
        return {
            rank: self._number(value)
            for rank, value in found.items()
            if value is not None and value.numel()
        }

    def _number(self, value: torch.Tensor) -> float | None:
        low, high = float(value.min()), float(value.max())
        return high if abs(high - low) <= self.relative * abs(high) else None

    def elements(self) -> dict[str, float] | None:
        """Return the number that all ranks read in each gradient.

        None where the norm is not known: if a gradient has several numbers, if the number of its elements
        is not that of the plain parameter, or if parameters are clipped apart.
        """
        if any(each.steps[0].clips_parts for each in self.play.ranks):
            return None
        found, squares = dict[str, float](), self.play.squares(0)
        for name in squares.names:
            numbers = {*self.read(name).values()}
            plain = self.play.reference.values.start.get(name)
            number = numbers.pop() if len(numbers) == 1 else None
            if number is None or plain is None:
                return None
            count = squares.whole([name]) / number**2
            if abs(count / plain.numel() - 1) > self.relative:
                return None
            found[name] = number
        return found


def _constant_play(
    training: Training,
    layout: Layout,
    numbers: AllOnes,
    reference: OneRank,
    num_steps: int = 1,
) -> ConstantPlay | None:
    """Make steps with gradients of one number each; None if a rank did not end."""
    setup = replace(training, variation=numbers, num_steps=num_steps)
    simulation = play_on(setup, layout, finds_races=False)
    if (ranks := ranks_of(simulation, layout)) is None:
        return None
    return ConstantPlay(setup, beside(setup, layout, ranks, reference))


def closed_form(
    base: LayoutPlay, training: Training, reference: OneRank
) -> LayoutPlay | None:
    """Make steps with gradients of all ones, and compare norm and clipping with the closed form.

    The base is a right play of the training as it is, beside the reference.

    Returns:
        The play, with values that differ; one that was not tried where the norm is not known.
        None for a step without norm and clipping of which nothing is compared.
    """
    untried = replace(
        base, variation=_SMALL, is_tried=False, num_values=0, worst={}, zero=()
    )
    # A second step shows gradients that are not cleared: with a loss they differ from one rank.
    steps = 2 if training.loss is None else 1
    clips = training.clip is not None or base.has_norm
    small = _constant_play(training, base.layout, _SMALL, reference, steps)
    if small is None or not (elements := small.elements()):
        return untried if clips else None
    case = _Case(small, elements)
    values = case.norm_values()
    wrong = [(each, case.norm_cause()) for each in values if each.wrong_ranks]
    clipped = list[ComparedValue]()
    if not wrong:
        clipped = case.coefficients()
        values += clipped
        wrong = [(e, case.clip_cause(e)) for e in clipped if e.wrong_ranks]
    kept = case.gradients_kept()
    values += kept
    wrong += [(each, NotCleared()) for each in kept]
    if not values:
        return None if not clips else untried
    mistakes = [
        WrongQuantity(
            listed[0].quantity,
            listed[0].step,
            cause,
            differences=tuple(listed),
            num_values=sum(e.quantity is listed[0].quantity for e in values),
        )
        for cause, listed in grouped(wrong)
    ]
    return replace(
        untried,
        is_tried=True,
        findings=tuple(e for e in mistakes if not isinstance(e.cause, Unexplained)),
        unexplained=tuple(e for e in mistakes if isinstance(e.cause, Unexplained)),
        num_values=len(values),
        worst=worst_errors(values),
        unclipped=None if clipped else base.unclipped,
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """A training with known gradients."""

    small: ConstantPlay  # steps with small numbers, all alike
    # The numbers that the optimizer reads then, by parameter.
    elements: Mapping[str, float]

    def norm_values(self) -> list[ComparedValue]:
        """Return the norm as a multiple of the largest element; no value if it is not seen."""
        unit = max(map(abs, self.elements.values()))
        norm = self.small.play.squares(0).norm / unit
        got = {rank: _scalar(each / unit) for rank, each in self.small.norms.items()}
        if not got:
            return []
        right, tolerance = dict.fromkeys(got, _scalar(norm)), self.small.relative * norm
        return [ComparedValue(Quantity.NORM, 0, "norm", got, right, tolerance)]

    def gradients_kept(self) -> list[ComparedValue]:
        """Return gradients with twice the number: the second step adds them to those of the first one.

        FSDP2's gradients are not among them: they are replaced after it has added them.
        """
        values = list[ComparedValue]()
        elements = self.elements if self.small.training.num_steps > 1 else {}
        for name, element in elements.items():
            got = {
                rank: rounded(number / element)
                for rank, number in self.small.read(name, 1).items()
                if number is not None
            }
            if {*got.values()} == {2.0}:
                scalars = {rank: _scalar(each) for rank, each in got.items()}
                right = dict.fromkeys(got, _scalar(1.0))
                values.append(ComparedValue(Quantity.GRADIENT, 1, name, scalars, right))
        return values

    def norm_cause(self) -> StepMistake:
        """Return the mistake that gives wrong norms."""
        play = self._play(_SMALL_AND_DISTINCT)
        if play is None or not (elements := play.elements()):
            return Unexplained()
        largest = max(map(abs, elements.values()))
        if all(math.isclose(n, largest, rel_tol=1e-6) for n in play.norms.values()):
            return Unexplained()  # the largest element is a norm, too
        return self._mistake(play.norms, play.play.squares(0), play.relative)

    def _mistake(
        self, norms: Mapping[int, float], squares: Squares, relative: float
    ) -> StepMistake:
        scale = self.small.scale
        scaled = squares.norm * scale
        are_scaled = all(
            math.isclose(each, scaled, rel_tol=relative) for each in norms.values()
        )
        if scale != 1 and norms and are_scaled:
            return Scaled(rounded(scale), is_scale=True)
        groups = groups_of(squares)
        return wrong_squares(norms, squares, relative, groups) or Unexplained()

    def coefficients(self) -> list[ComparedValue]:
        """Return the coefficients of clipping for large gradients; none where they are not known."""
        clip = self.small.training.clip
        if clip is None or not math.isfinite(clip):
            return []
        large = AllOnes(_LARGE * clip, are_distinct=True)
        if (play := self._play(large)) is None:
            return []
        factors = self._factors(large)
        norm = self._squares(factors).norm
        expected = _scalar(rounded(coefficient_of(norm, clip)))
        tolerance = float(expected) * _RELATIVE_OF_COEFFICIENTS
        values = list[ComparedValue]()
        for name, element in self.elements.items():
            read = play.read(name)
            if not read or None in read.values():
                return []
            got = {
                rank: _scalar(rounded(number / element / factors[name]))
                for rank, number in read.items()
                if number is not None
            }
            right = dict.fromkeys(got, expected)
            values.append(
                ComparedValue(Quantity.STEPPED, 0, name, got, right, tolerance)
            )
        return values

    def clip_cause(self, found: ComparedValue) -> StepMistake:
        """Return the mistake that gives another coefficient."""
        clip = self.small.training.clip
        got = {r: float(each) for r, each in found.got.items() if each is not None}
        expected = float(next(iter(found.expected.values())))
        assert clip is not None
        if all(each == 1 for each in got.values()):
            return NotClipped(expected)
        if not all(0 < each < 1 for each in got.values()):
            return Unexplained()
        norms = {rank: clip / each for rank, each in got.items()}
        factors = self._factors(AllOnes(_LARGE * clip, are_distinct=True))
        cause = self._mistake(norms, self._squares(factors), _RELATIVE_OF_COEFFICIENTS)
        if isinstance(cause, NormMistake):
            return OtherCoefficient(got, expected, cause)
        return cause

    def _factors(self, numbers: AllOnes) -> Mapping[str, float]:
        """Return by how much larger the numbers of another play are, by parameter."""
        names = dict.fromkeys(self.small.play.reference.values.first_names.values())
        return {
            name: numbers.element(index) / _SMALL.element(index)
            for index, name in enumerate(names)
        }

    def _squares(self, factors: Mapping[str, float]) -> Squares:
        """Return the squares of gradients with larger numbers."""
        return self.small.play.squares(0).multiplied(
            lambda _, name: factors.get(name, 1.0)
        )

    def _play(self, numbers: AllOnes) -> ConstantPlay | None:
        play = self.small.play
        return _constant_play(self.small.training, play.layout, numbers, play.reference)


def _scalar(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64)
