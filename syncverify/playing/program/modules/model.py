"""Models: real modules for scenarios, with the placements of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from syncverify.scenario.layout import coordinates, local_shape, rank_at
from syncverify.scenario.specs import REPLICATE, MeshSpec, ParameterSpec, shard

# Any mesh: global shapes are the same on all.
_ONE_RANK = MeshSpec((1,), ("dp",))


@dataclass(frozen=True, slots=True)
class Model:
    """A module that scenarios may train.

    Attributes:
        build: Makes the module of one rank, from the mesh and the global rank. Parameters
            are float32, in their global shape. `forward` takes a seeded `torch.Generator` of
            the CPU, draws a batch from it and returns a scalar loss. It runs with local parts
            as parameters, takes sizes, dtypes and the device from them, and does not
            communicate.
        sharded: Tensor dim that the last mesh axis cuts, by parameter name; all other
            parameters are replicated.
    """

    build: Callable[[MeshSpec, int], nn.Module]
    sharded: Mapping[str, int] = field(default_factory=dict)

    def global_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the parameters' shapes in registration order, tied parameters once."""
        with torch.device("meta"):
            module = self.build(_ONE_RANK, 0)
        return {name: tuple(each.shape) for name, each in module.named_parameters()}

    def parameters(
        self, shapes: Mapping[str, tuple[int, ...]], mesh: MeshSpec
    ) -> tuple[ParameterSpec, ...]:
        """Place parameters of global shapes on a mesh."""
        return tuple(
            ParameterSpec(name, shape, self._placements(name, mesh))
            for name, shape in shapes.items()
        )

    def _placements(self, name: str, mesh: MeshSpec) -> tuple[str, ...]:
        placements = [REPLICATE] * len(mesh.shape)
        if name in self.sharded:
            placements[-1] = shard(self.sharded[name])
        return tuple(placements)


def initial_value(mesh: MeshSpec, spec: ParameterSpec, rank: int) -> torch.Tensor:
    """Return one rank's part of a parameter's initial value, between -1/2 and 1/2, in float64.

    All parts come from one global tensor: replicas are equal, and shards differ.
    """
    part = torch.arange(torch.Size(spec.global_shape).numel(), dtype=torch.float64)
    # A product with a prime, modulo another prime, has no regular order. In a regular order
    # a layer could cancel terms, and gradients would be 0.
    part = (part * 619 + 17 * len(spec.name)) % 1009 / 1009 - 0.5
    part = part.reshape(spec.global_shape)
    local = local_shape(mesh, spec, rank)
    for dim, size in enumerate(local):
        first = _first_index(mesh, spec, rank, dim)
        part = part.narrow(dim, min(first, part.shape[dim]), size)
    return part


def _first_index(mesh: MeshSpec, spec: ParameterSpec, rank: int, dim: int) -> int:
    """Return the index at which a part begins, after the parts of lower coordinates."""
    if spec.placements is None or spec.placements[-1] != shard(dim):
        return 0
    *others, coordinate = coordinates(mesh, rank)
    return sum(
        local_shape(mesh, spec, rank_at(mesh, (*others, before)))[dim]
        for before in range(coordinate)
    )
