"""Values of a training on a mesh and on one rank, and the facts that explain differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from syncverify.errors import UsageError
from syncverify.judge.whole_step.differences import ComparedValue, OneRank
from syncverify.judge.whole_step.factors import is_number
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.parts import (
    is_same_batch,
    micro_batches,
    own_axes,
    pieces,
)
from syncverify.judge.whole_step.values import (
    ByRank,
    NamedTensors,
    Quantity,
    RankValues,
)
from syncverify.trace.source_lines import Origin

# Names of parameters, by the axes over which they are split.
Classes = Mapping[frozenset[str], tuple[str, ...]]


class Use(NamedTuple):
    """A use of a parameter in the forward pass, and what it adds to the gradient."""

    part: torch.Tensor
    line: Origin | None  # None for a custom function


@dataclass(frozen=True, slots=True)
class Known:
    """Facts with which the mistakes of one step are looked for."""

    play: MeshPlay
    # Gradient of the loss of each different part of the batch, by name.
    parts: Sequence[Mapping[str, torch.Tensor]] = ()
    part_of: Sequence[int] = ()  # index of each rank's part
    # Gradient of each term of the loss, by name, where the loss has several.
    terms: Mapping[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    # Rank 0's gradients of the step before, by name; None in the first step.
    before: NamedTensors | None = None
    # Gradient of the loss of each micro-batch of each different part, by name; none where there is
    # one.
    micro_batches: Sequence[Mapping[str, torch.Tensor]] = ()
    # Right gradients of all parameters, and the uses of each on one rank, by name.
    whole: NamedTensors = field(default_factory=dict)
    uses: Mapping[str, Sequence[Use]] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        """The layout of the mesh."""
        return self.play.layout

    def is_number_of_parts(self, factor: float) -> bool:
        """Tell whether a factor is the number of micro-batches, or its reciprocal."""
        return is_number(factor, self.play.num_micro_batches)

    @property
    def split_axes(self) -> frozenset[str]:
        """The axes over which ranks have different parts of the batch."""
        return frozenset(
            name
            for name in self.layout.names
            for rank in range(len(self.part_of))
            if len({self.part_of[r] for r in self.layout.group(rank, [name])}) > 1
        )


@dataclass(frozen=True, slots=True)
class Squares:
    """Squares of the gradients of each rank."""

    layout: Layout
    # Sum of the squares of a rank's part of each gradient, by name.
    by_rank: Sequence[Mapping[str, float]]
    split_over: Mapping[str, frozenset[str]]

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(self.layout.num_ranks)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that have a gradient."""
        return tuple(n for n in self.split_over if any(e.get(n) for e in self.by_rank))

    @property
    def norm(self) -> float:
        """The norm of all gradients, each element counted once."""
        return math.sqrt(self.whole(self.names))

    def held(self, name: str) -> list[int]:
        """Return the ranks that have a part of a gradient."""
        return [rank for rank in self.ranks if name in self.by_rank[rank]]

    def whole(self, names: Sequence[str]) -> float:
        """Return the squares of some parameters, each element counted once."""
        return sum(
            self.total(held[0], name, self.split_over[name])
            for name in names
            if (held := self.held(name))
        )

    def classes(self) -> Classes:
        """Return the parameters by the axes that split them."""
        named = dict[frozenset[str], list[str]]()
        for name, axes in self.split_over.items():
            named.setdefault(axes.intersection(self.layout.large_axes), []).append(name)
        return {axes: tuple(names) for axes, names in named.items()}

    def total(self, rank: int, name: str, axes: frozenset[str]) -> float:
        """Return the sum of a parameter's squares over the ranks of some axes."""
        group = self.layout.group(rank, axes)
        return sum(self.by_rank[other].get(name, 0.0) for other in group)

    def own_parts(self, names: Sequence[str], axes: frozenset[str]) -> list[float]:
        """Return each rank's squares of some parameters, not added over some axes."""
        over = {name: self.split_over[name] - axes for name in names}
        return [sum(self.total(r, n, over[n]) for n in names) for r in self.ranks]

    def multiplied(self, factor: Callable[[int, str], float]) -> Squares:
        """Return the squares of gradients that are multiplied, by rank and name."""
        by_rank = [
            {name: square * factor(rank, name) ** 2 for name, square in named.items()}
            for rank, named in enumerate(self.by_rank)
        ]
        return replace(self, by_rank=by_rank)


@dataclass(frozen=True, slots=True)
class PlainGradients:
    """Gradients on one rank, by name."""

    whole: Mapping[str, torch.Tensor]  # of the loss of the whole batch
    # Gradients of the loss, for each part of a batch.
    parts: list[dict[str, torch.Tensor]]
    # Gradients of each term of the loss of the whole batch, where there are several.
    terms: dict[str, dict[str, torch.Tensor]]
    uses: Mapping[str, Sequence[Use]]  # in the order of the forward


@dataclass(frozen=True, slots=True)
class MeshPlay:
    """Values of a training on a mesh, beside those of one rank."""

    layout: Layout
    ranks: Sequence[RankValues]
    reference: OneRank
    own: Own
    clip: float | None  # largest norm of gradients; None without clipping
    num_micro_batches: int
    # Whether the training has a loss, so that one rank can play parts of a step.
    has_loss: bool
    # Whether there is a schedule, and the user's step does not take it.
    leaves_schedule: bool
    # Plays a step on one rank, and parts of its batch, from given parameters, and returns the
    # gradients.
    gradients_of: Callable[[Sequence[Any], int, NamedTensors], PlainGradients]
    # Plays the optimizer on the gradients of a rank, and returns its values by step.
    optimized: Callable[[RankValues], list[Mapping[Quantity, NamedTensors]]]

    @property
    def scale(self) -> float:
        """The scale of the loss after step 0, for the mistakes of all steps; 1 without a scaler."""
        scales = self.reference.tensors(Quantity.SCALE, 0).values()
        return next((float(each) for each in scales if each is not None), 1.0)

    def pieces(
        self, found: ComparedValue, value: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        """Return the part of a whole value that each rank of a compared value has."""
        return pieces(found.name, value, found.got, layout=self.layout, own=self.own)

    def clip_is_seen(self, step: int) -> bool:
        """Tell whether all ranks called torch's clipping in a step."""
        return all(each.steps[step].tensors[Quantity.NORM] for each in self.ranks)

    def by_rank(self, quantity: Quantity, step: int, name: str) -> ByRank:
        """Return a value as each rank has it."""
        listed = enumerate(each.tensors(quantity, step) for each in self.ranks)
        return {rank: tensors.get(name) for rank, tensors in listed}

    def squares(self, step: int) -> Squares:
        """Return the squares of the gradients of each rank in a step."""
        split_over = {
            name: axes | {*own_axes(name, self.own)}
            for each in self.ranks
            for name, axes in each.split_over.items()
        }
        by_rank = [each.steps[step].local_squares for each in self.ranks]
        return Squares(self.layout, by_rank, split_over)

    def known(self, step: int, start: NamedTensors) -> Known:
        """Return the facts that explain the mistakes of a step.

        It starts with parameters of one rank, or with the ranks' own.
        """
        fewer = Known(self, whole=self.reference.tensors(Quantity.GRADIENT, step))
        if not self.has_loss:
            return fewer
        number = self.num_micro_batches
        batches, part_of = _different_parts(self.ranks, step)
        smaller = [each for part in batches for each in micro_batches(part, number)]
        listed = [*batches, *(smaller if number > 1 else [])]
        try:
            found = self.gradients_of(listed, step, start)
        except UsageError:  # the loss needs more than a rank's part
            return fewer
        before = self.ranks[0].steps[step - 1].tensors if step else {}
        return Known(
            self,
            parts=found.parts[: len(batches)],
            part_of=part_of,
            terms=found.terms,
            before=before.get(Quantity.GRADIENT),
            micro_batches=found.parts[len(batches) :],
            whole=found.whole,
            uses=found.uses,
        )

    def start(self, step: int) -> NamedTensors:
        """Return the parameters of one rank before a step."""
        return self.reference.values.parameters_before(step)

    def own_start(self, step: int) -> NamedTensors | None:
        """Return the ranks' own parameters before a step of number 1 or more.

        None if copies differ or one is not whole.
        """
        whole = dict[str, torch.Tensor | None]()
        for name, value in self.reference.tensors(Quantity.PARAMETER, step - 1).items():
            every = self.by_rank(Quantity.PARAMETER, step - 1, name).values()
            copies = [each for each in every if each is not None]
            if not copies or value is None or value.shape != copies[0].shape:
                return None
            if not all(torch.equal(each, copies[0]) for each in copies):
                return None
            whole[name] = copies[0]
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
