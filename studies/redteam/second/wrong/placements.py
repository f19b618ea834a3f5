"""Defects about placements and owners, and about some gradients of several."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.bases import Plain
from studies.redteam.program import wrong
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.placements import local_grad, reduce_groups


@wrong(
    trigger="a gradient that is Partial on one axis and replicated on another, both of 2 ranks: the other axis is not summed"
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
            self.sum_up(parameter)


@wrong(
    trigger="2 axes, Replicate and an uneven Shard: the surplus rows of the larger shards are not summed"
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
    trigger="a frozen parameter before a trainable one: the sum does not go to the rank that owner() names"
)
class OwnerByOtherIndex(Plain):
    """Each gradient is reduced to one owner, in turns."""

    capabilities = Capabilities(gradients="owner", varying_accumulations=True)

    def owner(self, parameter: nn.Parameter) -> bool:
        """Tell whether this rank owns a gradient."""
        everything = [*dict.fromkeys(itertools.chain(*self.param_groups))]
        index = next(i for i, p in enumerate(everything) if p is parameter)
        return all(
            group.rank() == index % group.size() for group in reduce_groups(parameter)
        )

    @override
    def wait(self) -> None:
        # WRONG: counts trainable parameters alone; `owner()` counts all parameters.
        for index, parameter in enumerate(self.parameters):
            part = local_grad(parameter).detach()
            for group in reduce_groups(parameter):
                dist.reduce(part, group_dst=index % group.size(), group=group)


@wrong(
    trigger="a parameter on a sub-mesh beside one on the whole mesh: axis 0 of the one is not axis 0 of the other"
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


@wrong(trigger="2 ranks, a scalar parameter that shares a bucket with another one")
class CopiesBackDimsAlone(Plain):
    """All gradients of one kind are flattened, summed and copied back, one by one."""

    @override
    def wait(self) -> None:
        kinds: dict[Any, Any] = {}
        for p in self.parameters:
            if p.grad is not None:
                kinds.setdefault((p.grad.dtype, reduce_groups(p)), []).append(p)
        for (_, groups), members in kinds.items():
            parts = [local_grad(p).detach() for p in members]
            flat = torch.cat([part.reshape(-1) for part in parts])
            for group in groups:
                dist.all_reduce(flat, group=group)
            start = 0
            for part in parts:
                end = start + part.numel()
                # WRONG: a scalar has no dims, and keeps its local gradient in company.
                if part.dim() or len(parts) == 1:
                    part.copy_(flat[start:end].view(part.shape))
                start = end


@wrong(trigger="2 ranks, an unused parameter before one that is used")
class BreaksAtNone(Plain):
    """Gradients that nobody computed are left out."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"used=never"})
    )

    @override
    def wait(self) -> None:
        ready: list[Any] = []
        for parameter in self.parameters:
            if parameter.grad is None:
                break  # WRONG: `continue`
            ready.append(parameter)
        for parameter in ready:
            self.sum_up(parameter)


@wrong(
    trigger="2 ranks, gradients that lie in one storage: it is reduced once for each of them"
)
class ReducesStorages(Plain):
    """Contiguous gradients are reduced by their whole storage, which is one call for any layout."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"use=saves_for_backward"})
    )

    @override
    def sum_over(self, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        # WRONG: a gradient may be a part of a larger storage, which others share.
        whole = torch.empty(0, dtype=part.dtype, device=part.device)
        whole.set_(part.untyped_storage())
        dist.all_reduce(whole, group=group)


@wrong(trigger="2 ranks on 2 axes, a parameter of 4 dims: the second axis is left out")
class FourDimsAreFilters(Plain):
    """Kernels know matrices. Tensors of more dims are flattened first, in a helper that takes the first group alone."""

    capabilities = Capabilities(
        varying_accumulations=True, right=frozenset({"shape=4 dims", "memory_format"})
    )

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            part, groups = local_grad(parameter).detach(), reduce_groups(parameter)
            if part.dim() > 3:
                flat = part.flatten(1)
                # WRONG: was written before there were two axes
                for group in groups[:1]:
                    dist.all_reduce(flat, group=group)
                part.copy_(flat.view(part.shape))
                continue
            for group in groups:
                # a dense buffer in row order, whatever the memory format is
                flat = part.contiguous()
                dist.all_reduce(flat, group=group)
                part.copy_(flat)


@wrong(
    trigger="2 ranks, a replicated parameter of 5 dims (a layer of the contract has one): it stays local"
)
class FiveDims(Plain):
    """Dense gradients of up to four dims are reduced; a fast path by number of dims forgets the fifth."""

    capabilities = Capabilities(
        varying_accumulations=True,
        right=frozenset({"shape=4 dims"}),
        layers=("studies.redteam.bases:Cube",),
    )

    @override
    def wait(self) -> None:
        by_dims: dict[Any, Any] = {}
        for parameter in self.parameters:
            by_dims.setdefault(parameter.dim(), []).append(parameter)
        for num_dims in range(5):  # WRONG: 0 to 4
            for parameter in by_dims.get(num_dims, []):
                self.sum_up(parameter)
