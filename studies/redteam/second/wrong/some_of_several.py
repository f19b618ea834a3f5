"""Defects that show on some gradients of several."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.second.bases import Plain
from syncverify.bugbank.bases.placements import (
    local_grad,
    reduce_groups,
)
from syncverify.scenario.contract import Capabilities


@wrong(
    "one of several gradients",
    trigger="2 ranks, a scalar parameter that shares a bucket with another one",
)
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


@wrong(
    "one of several is None",
    trigger="2 ranks, an unused parameter before one that is used",
)
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
            for group in reduce_groups(parameter):
                self.sum_over(local_grad(parameter).detach(), group)


@wrong(
    "gradients sharing one storage",
    trigger="2 ranks, gradients that lie in one storage: it is reduced once for each of them",
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


@wrong(
    "many dims",
    trigger="2 ranks on 2 axes, a parameter of 4 dims: the second axis is left out",
)
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
    "five dims",
    trigger="2 ranks, a replicated parameter of 5 dims (a layer of the contract has one): it stays local",
)
class FiveDims(Plain):
    """Dense gradients of up to four dims are reduced; a fast path by number of dims forgets the fifth."""

    capabilities = Capabilities(
        varying_accumulations=True,
        right=frozenset({"shape=4 dims"}),
        layers=("studies.redteam.second.bases:Cube",),
    )

    @override
    def wait(self) -> None:
        by_dims: dict[Any, Any] = {}
        for parameter in self.parameters:
            by_dims.setdefault(parameter.dim(), []).append(parameter)
        for num_dims in range(5):  # WRONG: 0 to 4
            for parameter in by_dims.get(num_dims, []):
                for group in reduce_groups(parameter):
                    self.sum_over(local_grad(parameter).detach(), group)
