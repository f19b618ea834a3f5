"""Values of a training on a mesh and on one rank, and the facts that explain differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from syncverify.errors import UsageError
from syncverify.judge.whole_step.batches import is_same_batch, micro_batches
from syncverify.judge.whole_step.differences import OneRank, own_axes
from syncverify.judge.whole_step.known import Known
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.norm_causes import Squares
from syncverify.judge.whole_step.values import NamedTensors, Quantity, RankValues


@dataclass(frozen=True, slots=True)
class PlainGradients:
    """Gradients on one rank, by name.

    Attributes:
        parts: Gradients of the loss, for each part of a batch.
        terms: Gradients of each term of the loss of the whole batch, where there are several.
    """

    parts: list[dict[str, torch.Tensor]]
    terms: dict[str, dict[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class MeshPlay:
    """Values of a training on a mesh, beside those of one rank.

    Attributes:
        reference: Values of one rank.
        clip: Largest norm of gradients; None without clipping.
        has_loss: Whether the training has a loss, so that one rank can play parts of a step.
        leaves_schedule: Whether there is a schedule, and the user's step does not take it.
        gradients_of: Plays parts of a batch on one rank, in a step, from given parameters, and
            returns their gradients.
        optimized: Plays the optimizer on the gradients of a rank, and returns its values by step.
    """

    layout: Layout
    ranks: Sequence[RankValues]
    reference: OneRank
    own: Own
    clip: float | None
    num_micro_batches: int
    has_loss: bool
    leaves_schedule: bool
    gradients_of: Callable[[Sequence[Any], int, NamedTensors], PlainGradients]
    optimized: Callable[[RankValues], list[Mapping[Quantity, NamedTensors]]]

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
            name: axes | {*own_axes(name, self.own)}
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
        number = self.num_micro_batches
        facts = Known(
            self.layout,
            self.own,
            scale=self.scale,
            num_micro_batches=number,
            frozen=self.frozen,
        )
        if not self.has_loss:
            return facts
        batches, part_of = _different_parts(self.ranks, step)
        smaller = (
            [each for batch in batches for each in micro_batches(batch, number)]
            if number > 1
            else []
        )
        listed = [*batches, *smaller]
        try:
            found = self.gradients_of(listed, step, start)
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


def _different_parts(
    ranks: Sequence[RankValues], step: int
) -> tuple[list[Any], list[int]]:
    """Return the different parts of a step's batch, and the index of each rank's part."""
    parts, indices = list[Any](), list[int]()
    for each in ranks:
        part = each.batches[step]
        same = (i for i, other in enumerate(parts) if is_same_batch(part, other))
        index = next(same, len(parts))
        if index == len(parts):
            parts.append(part)
        indices.append(index)
    return parts, indices
