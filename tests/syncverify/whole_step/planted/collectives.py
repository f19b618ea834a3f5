"""Collectives in a forward pass, with their backward passes, over one axis."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup


def summed(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return the sum of a tensor over a group."""
    value = value.clone()
    dist.all_reduce(value, group=group)
    return value


def gathered(value: torch.Tensor, dim: int, group: ProcessGroup) -> torch.Tensor:
    """Return the tensors of a group, one behind the other."""
    value = value.contiguous()
    parts = [torch.empty_like(value) for _ in range(group.size())]
    dist.all_gather(parts, value, group=group)
    return torch.cat(parts, dim)


def own_slice(value: torch.Tensor, dim: int, group: ProcessGroup) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    return value.chunk(group.size(), dim)[group.rank()].contiguous()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Any, *rest: Any) -> Any:
        dim, group, _ = ctx.rest = rest
        return gathered(value, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        dim, group, is_whole = ctx.rest
        grad = grad if is_whole else summed(grad, group)
        return own_slice(grad, dim, group), None, None, None


class _Slice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Any, *rest: Any) -> Any:
        dim, group, is_partial = rest
        ctx.rest = (dim, group)
        value = summed(value, group) if is_partial else value
        return own_slice(value, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return gathered(grad, *ctx.rest), None, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Any, group: Any) -> Any:
        return summed(value, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None


class _SumBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Any, group: Any) -> Any:
        ctx.group = group
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return summed(grad, ctx.group), None


def gather(
    value: torch.Tensor, dim: int, group: ProcessGroup, *, is_whole: bool
) -> torch.Tensor:
    """Gather the parts of ranks.

    Args:
        value: This rank's part.
        dim: Dimension of the parts.
        group: The group.
        is_whole: Whether all ranks make the same of the result, and have its whole gradient.
    """
    out: torch.Tensor = _Gather.apply(value, dim, group, is_whole)  # type: ignore[no-untyped-call]
    return out


def take_slice(
    value: torch.Tensor, dim: int, group: ProcessGroup, *, is_partial: bool
) -> torch.Tensor:
    """Take this rank's part of a tensor, or of its sum over the ranks."""
    out: torch.Tensor = _Slice.apply(value, dim, group, is_partial)  # type: ignore[no-untyped-call]
    return out


def add_up(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Add the parts of ranks; all ranks use the sum alike."""
    out: torch.Tensor = _Sum.apply(value, group)  # type: ignore[no-untyped-call]
    return out


def use_in_parts(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return a value that ranks use differently: its gradient is the sum of theirs."""
    out: torch.Tensor = _SumBackward.apply(value, group)  # type: ignore[no-untyped-call]
    return out
