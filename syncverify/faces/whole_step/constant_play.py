"""A step on a mesh, with gradients of one number each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from syncverify.faces.simulation.program import Device
from syncverify.faces.whole_step.data import AllOnes
from syncverify.faces.whole_step.playing import beside, play_on
from syncverify.faces.whole_step.training import Training
from syncverify.judge.whole_step.closed_norms import KnownNorm
from syncverify.judge.whole_step.differences import OneRank
from syncverify.judge.whole_step.factors import RELATIVE
from syncverify.judge.whole_step.layout import Layout
from syncverify.judge.whole_step.mesh_play import MeshPlay
from syncverify.judge.whole_step.values import Quantity, RankValues

# As a multiple of the unit roundoff: norms of right steps differ by far less.
_ROUNDINGS = 64.0


@dataclass(frozen=True, slots=True)
class ConstantPlay:
    """A step on a mesh, with gradients of one number each.

    Attributes:
        training: The training with these numbers.
        play: The play; its reference has different gradients.
        numbers: The numbers that were put into gradients.
    """

    training: Training
    play: MeshPlay
    numbers: AllOnes

    @property
    def relative(self) -> float:
        """Relative difference of a norm that counts as rounding."""
        return max(RELATIVE, _ROUNDINGS * torch.finfo(self.training.dtype).eps)

    @property
    def num_steps(self) -> int:
        """Number of steps."""
        return self.training.num_steps

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

    @property
    def known(self) -> KnownNorm:
        """The norm of the gradients that the optimizer reads, each element counted once."""
        return KnownNorm(self.play.squares(0))

    def read(self, name: str, step: int = 0) -> dict[int, float | None]:
        """Return the number that the optimizer of each rank reads in a gradient.

        Args:
            name: Name of the parameter.
            step: Number of the step.

        Returns:
            The numbers, of ranks that have the gradient; None where it has several.
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

        Returns:
            The numbers; None where the norm is not known: if a gradient has several numbers, if
            the number of its elements is not that of the plain parameter, or if parameters are
            clipped apart.
        """
        if any(each.steps[0].clips_parts for each in self.play.ranks):
            return None
        found, known = dict[str, float](), self.known
        for name in known.names:
            numbers = {*self.read(name).values()}
            plain = self.play.reference.values.start.get(name)
            number = numbers.pop() if len(numbers) == 1 else None
            if number is None or plain is None:
                return None
            count = known.whole([name]) / number**2
            if abs(count / plain.numel() - 1) > self.relative:
                return None
            found[name] = number
        return found


def constant_play(
    training: Training,
    layout: Layout,
    numbers: AllOnes,
    reference: OneRank,
    device: Device,
    num_steps: int = 1,
) -> ConstantPlay | None:
    """Make steps with gradients of one number each.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        layout: Names and sizes of the mesh axes.
        numbers: The numbers.
        reference: Values whose gradients are different; only the shapes of their parameters are used.
        device: Device that torch names to the program.
        num_steps: Number of steps.

    Returns:
        The play; None if a rank did not end.
    """
    setup = replace(training, variation=numbers, num_steps=num_steps)
    ranks: Sequence[RankValues] = [
        each
        for each in play_on(setup, layout, device, finds_races=False).results
        if isinstance(each, RankValues)
    ]
    if len(ranks) < layout.num_ranks:
        return None
    played = beside(setup, layout, ranks, reference, device)
    return ConstantPlay(setup, played, numbers)


def factors_between(
    one: AllOnes, other: AllOnes, names: Sequence[str]
) -> Mapping[str, float]:
    """Return by how much larger the numbers of another play are, by parameter."""
    return {
        name: other.element(index) / one.element(index)
        for index, name in enumerate(dict.fromkeys(names))
    }
