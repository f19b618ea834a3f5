"""A step with gradients of all ones: its norm is the root of the number of elements.

Nothing else is compared with, so a norm is found that is wrong on one rank as well, and the norm
of gradients that the user's data leaves at zero.

Note [Small, own and large numbers]

Each element is one very small number in the place of 1, so that clipping leaves gradients as they
are. The gradients that the optimizer reads are linear in it. If the norm is wrong, a second play
gives each parameter another number: it tells parameters of one size apart. If the norm is right,
and a largest norm is known, a play with large numbers shows the coefficient of clipping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch

from syncverify.faces.simulation.program import Device
from syncverify.faces.whole_step.constant_play import (
    ConstantPlay,
    constant_play,
    factors_between,
)
from syncverify.faces.whole_step.data import AllOnes
from syncverify.faces.whole_step.outcome import LayoutPlay, worst_errors
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.causes import (
    NormOf,
    NormOfOneRank,
    NormWithout,
    NotCleared,
    NotClipped,
    OtherCoefficient,
    Scaled,
    StepMistake,
    Unexplained,
)
from syncverify.judge.whole_step.clip_causes import coefficient_of
from syncverify.judge.whole_step.closed_norms import KnownNorm
from syncverify.judge.whole_step.differences import ComparedValue, OneRank
from syncverify.judge.whole_step.factors import rounded
from syncverify.judge.whole_step.findings import WrongQuantity
from syncverify.judge.whole_step.gradient_causes import grouped
from syncverify.judge.whole_step.values import Quantity

# Gradients so small that no usual bound clips their norm, even times the scale of a loss.
_SMALL: Final = AllOnes(2.0**-40)
_SMALL_AND_DISTINCT: Final = AllOnes(2.0**-40, are_distinct=True)
# As a multiple of the largest norm: so large that each norm is clipped.
_LARGE: Final = 2.0**20
# Relative error of a coefficient: clipping adds 1e-6 to the norm, or something as small, or nothing.
_RELATIVE_OF_COEFFICIENTS: Final = 1e-5


def closed_form(
    base: LayoutPlay, training: Training, reference: OneRank, device: Device
) -> LayoutPlay | None:
    """Make steps with gradients of all ones, and compare norm and clipping with the closed form.

    Args:
        base: A right play of the training as it is.
        training: Model, data, loss and parallelism that the user describes.
        reference: The values with which the play was compared.
        device: Device that torch names to the program.

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
    small = constant_play(
        training,
        base.layout,
        numbers=_SMALL,
        reference=reference,
        device=device,
        num_steps=steps,
    )
    if small is None or not (elements := small.elements()):
        return untried if clips else None
    case = _Case(small, elements, training, reference, device)
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
            quantity=listed[0].quantity,
            step=listed[0].step,
            cause=cause,
            differences=tuple(listed),
            follows=(),
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
    """A training with known gradients.

    Attributes:
        small: Steps with small numbers, all alike.
        elements: The numbers that the optimizer reads then, by parameter.
        reference: Values of the training as it is.
    """

    small: ConstantPlay
    elements: Mapping[str, float]
    training: Training
    reference: OneRank
    device: Device

    def norm_values(self) -> list[ComparedValue]:
        """Return the norm as a multiple of the largest element; no value if it is not seen."""
        unit = max(map(abs, self.elements.values()))
        norm = self.small.known.norm / unit
        got = {rank: _scalar(each / unit) for rank, each in self.small.norms.items()}
        if not got:
            return []
        expected = dict.fromkeys(got, _scalar(norm))
        tolerance = self.small.relative * norm
        return [
            ComparedValue(
                quantity=Quantity.NORM,
                step=0,
                name="norm",
                got=got,
                expected=expected,
                tolerance=tolerance,
            )
        ]

    def gradients_kept(self) -> list[ComparedValue]:
        """Return gradients that the second step adds to those of the first one.

        FSDP2's gradients are not among them: they are replaced after it has added them.

        Returns:
            Gradients with twice the number, where once is right.
        """
        values = list[ComparedValue]()
        elements = self.elements if self.small.num_steps > 1 else {}
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
        return self._mistake(play.norms, play.known, play.relative)

    def _mistake(
        self, norms: Mapping[int, float], known: KnownNorm, relative: float
    ) -> StepMistake:
        scale = self.small.scale
        if (
            scale != 1
            and norms
            and all(
                math.isclose(each, known.norm * scale, rel_tol=relative)
                for each in norms.values()
            )
        ):
            return Scaled(rounded(scale), is_scale=True)
        return known.mistake(norms, relative) or Unexplained()

    def coefficients(self) -> list[ComparedValue]:
        """Return the coefficients of clipping for large gradients; none where they are not known."""
        clip = self.training.clip
        if clip is None or not math.isfinite(clip):
            return []
        large = AllOnes(_LARGE * clip, are_distinct=True)
        if (play := self._play(large)) is None:
            return []
        factors = self._factors(large)
        norm = self.small.known.scaled(factors).norm
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
            by_rank = dict.fromkeys(got, expected)
            values.append(
                ComparedValue(
                    quantity=Quantity.STEPPED,
                    step=0,
                    name=name,
                    got=got,
                    expected=by_rank,
                    tolerance=tolerance,
                )
            )
        return values

    def clip_cause(self, found: ComparedValue) -> StepMistake:
        """Return the mistake that gives another coefficient."""
        clip = self.training.clip
        got = {r: float(each) for r, each in found.got.items() if each is not None}
        expected = float(next(iter(found.expected.values())))
        assert clip is not None
        if all(each == 1 for each in got.values()):
            return NotClipped(expected)
        if not all(0 < each < 1 for each in got.values()):
            return Unexplained()
        norms = {rank: clip / each for rank, each in got.items()}
        known = self.small.known.scaled(
            self._factors(AllOnes(_LARGE * clip, are_distinct=True))
        )
        cause = self._mistake(norms, known, _RELATIVE_OF_COEFFICIENTS)
        if isinstance(cause, NormOf | NormOfOneRank | NormWithout):
            return OtherCoefficient(got, expected, cause)
        return cause

    def _factors(self, numbers: AllOnes) -> Mapping[str, float]:
        names = [*self.reference.values.first_names.values()]
        return factors_between(_SMALL, numbers, names)

    def _play(self, numbers: AllOnes) -> ConstantPlay | None:
        layout = self.small.play.layout
        return constant_play(
            self.training, layout, numbers, self.reference, self.device
        )


def _scalar(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64)
