"""What one gradient should consist of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from syncverify import agenda
from syncverify.oracle import Reference, same_part
from syncverify.scenario import ParameterSpec


@dataclass(frozen=True, slots=True)
class Owed:
    """What a gradient should consist of.

    Attributes:
        reference: The oracle.
        spec: The parameter.
        rank: Whose gradient it is.
        step: Optimizer step.
        count: Micro-batches accumulated so far.
        ranks: Ranks whose contributions it contains.
        divisor: What their sum is divided by.
    """

    reference: Reference
    spec: ParameterSpec
    rank: int
    step: int
    count: int
    ranks: tuple[int, ...]
    divisor: int

    def part(
        self, rank: int, micro_batches: Iterable[int] | None = None
    ) -> torch.Tensor:
        """Sum some micro-batches of one rank (all if None), in float64, undivided."""
        chosen = range(self.count) if micro_batches is None else micro_batches
        return self.reference.local(self.spec, rank, self.step, chosen)

    def value(self) -> torch.Tensor:
        """Return the gradient owed, in float64."""
        return self.total(self.ranks) / self.divisor

    def total(self, ranks: Iterable[int]) -> torch.Tensor:
        """Sum what the given ranks contribute, undivided."""
        return torch.stack([self.part(rank) for rank in ranks]).sum(dim=0)

    def may_be_none(self) -> bool:
        """Tell whether nobody contributes, so that no gradient is as good as zeros."""
        scenario = self.reference.scenario
        return not agenda.has_gradient(
            scenario, self.spec, self.ranks, self.step, self.count
        )

    def dtypes(self) -> set[str]:
        """Name the dtypes that the gradient may have."""
        cast = agenda.is_cast(self.reference.scenario, self.step)
        return {self.spec.effective_grad_dtype, *(["float64"] if cast else [])}

    def comparable(self) -> tuple[int, ...]:
        """List the ranks whose local part has the same shape."""
        return same_part(self.reference.scenario, self.spec, self.rank)
