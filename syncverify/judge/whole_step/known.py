"""Facts with which mistakes are looked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from syncverify.judge.whole_step.factors import is_number
from syncverify.judge.whole_step.layout import Layout, Own
from syncverify.judge.whole_step.values import NamedTensors


@dataclass(frozen=True, slots=True)
class Known:
    """Facts with which the mistakes of one step are looked for.

    Attributes:
        layout: The layout with wrong values.
        parts: Gradient of the loss of each different part of the batch, by name.
        part_of: Index of each rank's part.
        terms: Gradient of each term of the loss, by name, where the loss has several.
        before: Rank 0's gradients of the step before, by name; None in the first step.
        scale: The scale of the loss; 1 without a scaler.
        micro_batches: Gradient of the loss of each micro-batch of each different part, by name;
            none where there is one.
        frozen: The frozen parameters of each rank.
    """

    layout: Layout
    own: Own = field(default_factory=dict)
    parts: Sequence[Mapping[str, torch.Tensor]] = ()
    part_of: Sequence[int] = ()
    terms: Mapping[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    before: NamedTensors | None = None
    scale: float = 1.0
    num_micro_batches: int = 1
    micro_batches: Sequence[Mapping[str, torch.Tensor]] = ()
    frozen: Sequence[frozenset[str]] = ()

    def is_number_of_parts(self, factor: float) -> bool:
        """Tell whether a factor is the number of micro-batches, or its reciprocal."""
        whole = factor if factor >= 1 else 1 / factor
        return is_number(whole, self.num_micro_batches)

    @property
    def split_axes(self) -> frozenset[str]:
        """The axes over which ranks have different parts of the batch."""
        return frozenset(
            name
            for name in self.layout.names
            if any(self._differs(rank, name) for rank in range(len(self.part_of)))
        )

    def _differs(self, rank: int, axis: str) -> bool:
        group = self.layout.group(rank, [axis])
        return len({self.part_of[other] for other in group}) > 1
