"""The right value of one gradient, and its parts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from syncverify.judge.reference import Reference
from syncverify.scenario import step_plan
from syncverify.scenario.layout import local_shape
from syncverify.scenario.other_meshes import mesh_of
from syncverify.scenario.specs import MeshSpec, ParameterSpec

_MAX_ALIKE = 64  # the caller plays all of these ranks


@dataclass(frozen=True, slots=True)
class ExpectedGradient:
    """The right gradient of one parameter on one rank, at one point of a step."""

    reference: Reference
    spec: ParameterSpec
    rank: int
    step: int
    count: int  # of micro-batches that are accumulated so far
    ranks: tuple[int, ...]  # whose contributions it contains
    divisor: int  # of their sum: 1, a declared one, or for a mean the number of ranks

    def part(
        self, rank: int, micro_batches: Iterable[int] | None = None
    ) -> torch.Tensor:
        """Sum some micro-batches of one rank (all if None), in float64, undivided."""
        chosen = range(self.count) if micro_batches is None else micro_batches
        return self.reference.local(self.spec, rank, self.step, chosen)

    def value(self) -> torch.Tensor:
        """Return the right gradient, in float64; shape of the local part."""
        return self.reduced(self.ranks)

    def magnitude(self) -> torch.Tensor:
        """Return the sum of the magnitudes of all contributions, divided, in float64."""
        parts = [self.part(rank, [m]).abs() for rank, m in self.terms()]
        return torch.stack(parts).sum(dim=0) / self.divisor

    def total(
        self, ranks: Iterable[int], micro_batches: Iterable[int] | None = None
    ) -> torch.Tensor:
        """Sum `part` over the given ranks, in float64, undivided."""
        chosen = None if micro_batches is None else tuple(micro_batches)
        return torch.stack([self.part(rank, chosen) for rank in ranks]).sum(dim=0)

    def reduced(
        self, ranks: Iterable[int], micro_batches: Iterable[int] | None = None
    ) -> torch.Tensor:
        """Return what a reduction over the given ranks leaves: their sum, divided, in float64."""
        return self.total(ranks, micro_batches) / self.divisor

    def terms(self) -> list[tuple[int, int]]:
        """List rank and micro-batch of each contribution."""
        return list(itertools.product(self.ranks, range(self.count)))

    def mesh(self) -> MeshSpec:
        """Return the mesh of the parameter."""
        return mesh_of(self.reference.scenario.mesh, self.spec)

    def may_be_none(self) -> bool:
        """Tell whether no rank contributes; then no gradient is as good as zeros."""
        scenario = self.reference.scenario
        return not step_plan.has_gradient(
            scenario, self.spec, self.ranks, self.step, self.count
        )

    def dtypes(self) -> set[str]:
        """Name the dtypes that the gradient may have."""
        cast = step_plan.is_cast(self.reference.scenario, self.step)
        return {self.spec.effective_grad_dtype, *(["float64"] if cast else [])}

    def comparable(self) -> tuple[int, ...]:
        """List the ranks whose local part has the same shape; of many the first ones."""
        mesh = self.reference.scenario.mesh
        shape = local_shape(mesh, self.spec, self.rank)
        alike = (
            rank
            for rank in range(mesh.num_ranks)
            if local_shape(mesh, self.spec, rank) == shape
        )
        return tuple(itertools.islice(alike, _MAX_ALIKE))


def local_gradient(
    reference: Reference, spec: ParameterSpec, rank: int, step: int, count: int
) -> ExpectedGradient:
    """Return the sum of a rank's own first micro-batches of a step."""
    return ExpectedGradient(reference, spec, rank, step, count, (rank,), divisor=1)
