"""Defects about placements and owners."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.second.bases import Plain
from syncverify.bugbank.bases.placements import (
    local_grad,
    reduce_groups,
)
from syncverify.scenario.contract import Capabilities


@wrong(
    "placement mistakes with DTensor",
    trigger="a gradient that is Partial on one axis and replicated on another, both of 2 ranks: the other axis is not summed",
)
class PartialEndsIt(Plain):
    """A gradient that arrives as Partial is redistributed by DTensor."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"placement=partial"})
    )

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            gradient = parameter.grad
            if isinstance(gradient, DTensor) and any(
                p.is_partial() for p in gradient.placements
            ):
                # WRONG: what is labelled Replicate is not summed either, and has to be.
                parameter.grad = gradient.redistribute(
                    placements=getattr(parameter, "placements", None)
                ).detach()
                continue
            for group in reduce_groups(parameter):
                self.sum_over(local_grad(parameter).detach(), group)


@wrong(
    "placement mistakes with DTensor",
    trigger="2 axes, Replicate and an uneven Shard: the surplus rows of the larger shards are not summed",
)
class EvenShardsAssumed(Plain):
    """Local sizes are computed from the global ones, so that all ranks plan alike."""

    def local_numel(self, parameter: nn.Parameter) -> int:
        """Return the number of elements of a local shard."""
        if not isinstance(parameter, DTensor):
            return parameter.numel()
        cut = math.prod(
            parameter.device_mesh.size(axis)
            for axis, placement in enumerate(parameter.placements)
            if placement.is_shard()
        )
        # WRONG: shards may be uneven, and larger than this
        return parameter.numel() // cut

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            part = local_grad(parameter).detach()
            flat = part.reshape(-1).clone()
            head = flat[: self.local_numel(parameter)]
            for group in reduce_groups(parameter):
                if head.numel():
                    dist.all_reduce(head, group=group)
            part.copy_(flat.view(part.shape))


@wrong(
    "ZeRO owners",
    trigger="a frozen parameter before a trainable one: the sum does not go to the rank that owner() names",
)
class OwnerByOtherIndex(Plain):
    """Each gradient is reduced to one owner, in turns."""

    capabilities = Capabilities(gradients="owner", varying_accumulations=True)

    def __init__(
        self,
        param_groups: list[list[nn.Parameter]],
        bucket_size_mb: float,
        require_accumulations: int,
    ) -> None:
        super().__init__(param_groups, bucket_size_mb, require_accumulations)
        self.everything = [*dict.fromkeys(p for group in param_groups for p in group)]

    def owner(self, parameter: nn.Parameter) -> bool:
        """Tell whether this rank owns a gradient."""
        index = self.place(self.everything, parameter)
        return all(
            group.rank() == index % group.size() for group in reduce_groups(parameter)
        )

    def place(self, listed: list[nn.Parameter], parameter: nn.Parameter) -> int:
        """Return the index of a parameter in a list."""
        return next(i for i, p in enumerate(listed) if p is parameter)

    @override
    def wait(self) -> None:
        # WRONG: counts trainable parameters alone; `owner()` counts all parameters.
        for index, parameter in enumerate(self.parameters):
            part = local_grad(parameter).detach()
            for group in reduce_groups(parameter):
                dist.reduce(part, group_dst=index % group.size(), group=group)


@wrong(
    "placement mistakes with DTensor",
    trigger="a parameter on a sub-mesh beside one on the whole mesh: axis 0 of the one is not axis 0 of the other",
)
class GroupsByAxisIndex(Plain):
    """Groups are looked up once for each axis index, since `get_group` is slow."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"placement=sub_mesh"})
    )

    @override
    def bind(self) -> None:
        self.by_axis: dict[Any, Any] = {}

    def cached_groups_of(self, parameter: nn.Parameter) -> Iterator[dist.ProcessGroup]:
        """Yield the groups over which to sum."""
        if not isinstance(parameter, DTensor):
            return
        mesh = parameter.device_mesh
        for axis, placement in enumerate(parameter.placements):
            if placement.is_replicate() and mesh.size(axis) > 1:
                # WRONG: the mesh belongs to the key.
                if axis not in self.by_axis:
                    self.by_axis[axis] = mesh.get_group(axis)
                yield self.by_axis[axis]

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            for group in self.cached_groups_of(parameter):
                self.sum_over(local_grad(parameter).detach(), group)

    @override
    def unbind(self) -> None:
        super().unbind()
        self.by_axis = {}
