"""A real module as the harness sees it: how to build it, and where its parameters lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from syncverify.layout import local_shape
from syncverify.scenario import REPLICATE, MeshSpec, ParameterSpec, shard


@dataclass(frozen=True, slots=True)
class Model:
    """A module that scenarios may train.

    Attributes:
        build: Makes the module of one rank of a mesh. Its `forward` takes a seeded
            `torch.Generator`, draws a batch from it and returns a scalar loss. It is
            handed local parts as parameters, so it communicates with nobody, and it takes
            sizes and dtypes from these. Parameters are float32 and of their global shape.
        sharded: Parameters that the last mesh axis cuts, and along which dim; all others
            are replicated.
    """

    build: Callable[[MeshSpec, int], nn.Module]
    sharded: Mapping[str, int] = field(default_factory=dict)

    def parameters(self, mesh: MeshSpec) -> tuple[ParameterSpec, ...]:
        """List the module's parameters, tied ones once, in its own order."""
        with torch.device("meta"):
            module = self.build(mesh, 0)
        return tuple(
            ParameterSpec(name, tuple(parameter.shape), self._placements(name, mesh))
            for name, parameter in module.named_parameters()
        )

    def _placements(self, name: str, mesh: MeshSpec) -> tuple[str, ...]:
        placements = [REPLICATE] * len(mesh.shape)
        if name in self.sharded:
            placements[-1] = shard(self.sharded[name])
        return tuple(placements)


def initial_value(mesh: MeshSpec, spec: ParameterSpec, rank: int) -> torch.Tensor:
    """Return one rank's part of a parameter's first value, in float64.

    Values lie between -1/2 and 1/2 and come of a global tensor: replicas have equal ones,
    shards different ones.
    """
    part = torch.arange(torch.Size(spec.global_shape).numel())
    # Multiplied by a prime, modulo another one: no order that a layer could turn into 0.
    part = (part * 619 + 17 * len(spec.name)) % 1009 / 1009 - 0.5
    part = part.to(torch.float64).reshape(spec.global_shape)
    local = local_shape(mesh, spec, rank)
    for dim, size in enumerate(local):
        first = _first_index(mesh, spec, rank, dim)
        part = part.narrow(dim, min(first, part.shape[dim]), size)
    return part


def _first_index(mesh: MeshSpec, spec: ParameterSpec, rank: int, dim: int) -> int:
    """Say where a part begins: all of lower coordinate on the last axis come first."""
    if spec.placements is None or spec.placements[-1] != shard(dim):
        return 0
    coordinate = rank % mesh.shape[-1]
    return sum(
        local_shape(mesh, spec, rank - coordinate + before)[dim]
        for before in range(coordinate)
    )
