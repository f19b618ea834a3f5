"""Values of a training on a mesh and on one rank, and the facts that explain differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from syncverify.errors import UsageError
from syncverify.simulation.program import Device
from syncverify.whole_step.batches import micro_batches
from syncverify.whole_step.differences import OneRank, own_axes
from syncverify.whole_step.known import Known
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.norm_causes import Squares
from syncverify.whole_step.playing import different_parts, gradients_of
from syncverify.whole_step.training import Training
from syncverify.whole_step.values import NamedTensors, Quantity, RankValues


@dataclass(frozen=True, slots=True)
class MeshPlay:
    """Values of a training on a mesh, beside those of one rank.

    Attributes:
        training: Model, data, loss and parallelism that the user describes.
        layout: Names and sizes of the mesh axes.
        ranks: Values of each rank.
        reference: Values of one rank.
        device: Device that torch names to the program.
    """

    training: Training
    layout: Layout
    ranks: Sequence[RankValues]
    reference: OneRank
    device: Device

    @property
    def plain_training(self) -> Training:
        """The training as it is computed on one rank."""
        return replace(self.training, computed_in=self.reference.computed_in)

    @property
    def scale(self) -> float:
        """The scale of the loss after step 0, for the mistakes of all steps; 1 without a scaler."""
        scales = self.reference.tensors(Quantity.SCALE, 0).values()
        return next((float(each) for each in scales if each is not None), 1.0)

    @property
    def frozen(self) -> list[frozenset[str]]:
        """The frozen parameters of each rank."""
        return [each.frozen for each in self.ranks]

    def clip_is_seen(self, step: int) -> bool:
        """Tell whether all ranks called torch's clipping in a step."""
        return all(each.steps[step].tensors[Quantity.NORM] for each in self.ranks)

    def by_rank(
        self, quantity: Quantity, step: int, name: str
    ) -> Mapping[int, torch.Tensor | None]:
        """Return a value as each rank has it."""
        return {
            rank: each.steps[step].tensors.get(quantity, {}).get(name)
            for rank, each in enumerate(self.ranks)
        }

    def squares(self, step: int) -> Squares:
        """Return the squares of the gradients of each rank in a step."""
        split_over = dict[str, frozenset[str]]()
        for each in self.ranks:
            split_over |= each.split_over
        split_over = {
            name: axes | {*own_axes(name, self.training.own)}
            for name, axes in split_over.items()
        }
        by_rank = [each.steps[step].local_squares for each in self.ranks]
        return Squares(self.layout, by_rank, split_over)

    def known(self, step: int, start: NamedTensors) -> Known:
        """Return the facts that explain the mistakes of a step.

        Args:
            step: Number of the step.
            start: Parameters before the step: those of one rank, or the ranks' own.
        """
        before = self.ranks[0].steps[step - 1].tensors if step else {}
        number = self.training.num_micro_batches
        facts = Known(
            self.layout,
            self.training.own,
            scale=self.scale,
            num_micro_batches=number,
            frozen=self.frozen,
        )
        if self.training.loss is None:
            return facts
        batches, part_of = different_parts(self.ranks, step)
        smaller = (
            [each for batch in batches for each in micro_batches(batch, number)]
            if number > 1
            else []
        )
        listed = [*batches, *smaller]
        try:
            found = gradients_of(self.plain_training, listed, step, start, self.device)
        except UsageError:
            # The loss needs more than a rank's part. Fewer mistakes can be named then.
            return facts
        return replace(
            facts,
            parts=found.parts[: len(batches)],
            part_of=part_of,
            terms=found.terms,
            before=before.get(Quantity.GRADIENT),
            micro_batches=found.parts[len(batches) :],
        )

    def start(self, step: int) -> NamedTensors:
        """Return the parameters of one rank before a step."""
        if step == 0:
            return self.reference.values.start
        return self.reference.tensors(Quantity.PARAMETER, step - 1)

    def own_start(self, step: int) -> NamedTensors | None:
        """Return the ranks' own parameters before a step; None if copies differ or one is not whole.

        Args:
            step: Number of the step, 1 or more.
        """
        whole = dict[str, torch.Tensor | None]()
        for name, value in self.reference.tensors(Quantity.PARAMETER, step - 1).items():
            copies = self.by_rank(Quantity.PARAMETER, step - 1, name).values()
            present = [each for each in copies if each is not None]
            if not present or any(
                not torch.equal(each, present[0]) for each in present
            ):
                return None
            if value is None or value.shape != present[0].shape:
                return None
            whole[name] = present[0]
        return whole
