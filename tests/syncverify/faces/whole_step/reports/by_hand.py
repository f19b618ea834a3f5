"""The ways in which a collective passes a gradient back, as functions of tensors."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

Way = Callable[[torch.Tensor, ProcessGroup], torch.Tensor]


def summed(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    total = value.detach().clone().contiguous()
    dist.all_reduce(total, group=group)
    return total


def own_part(value: torch.Tensor, group: ProcessGroup, dim: int = 0) -> torch.Tensor:
    return value.detach().chunk(group.size(), dim)[group.rank()].clone()


def _same(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    return value.detach().clone()


def _gathered(value: torch.Tensor, group: ProcessGroup, dim: int) -> torch.Tensor:
    value = value.detach().contiguous()
    parts = [torch.empty_like(value) for _ in range(group.size())]
    dist.all_gather(parts, value, group=group)
    return torch.cat(parts, dim)


def _own_part_of_sum(
    value: torch.Tensor, group: ProcessGroup, dim: int
) -> torch.Tensor:
    return own_part(summed(value, group), group, dim)


class _Collective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, group: ProcessGroup, there: Way, back: Way
    ) -> torch.Tensor:
        ctx.group, ctx.back = group, back
        return there(value, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return ctx.back(gradients[0], ctx.group), None, None, None


def _passed(
    value: torch.Tensor, group: ProcessGroup, there: Way, back: Way
) -> torch.Tensor:
    return _Collective.apply(value, group, there, back)  # type: ignore[no-untyped-call]


def sums_gradient(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return a tensor whose gradient is summed: the way of equal rows into split layers."""
    return _passed(value, group, _same, summed)


def sums(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return the sum over a group: the way of equal rows out of split layers."""
    return _passed(value, group, summed, _same)


def gathers(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return all ranks' rows: the way of own rows into split layers."""
    there, back = (partial(each, dim=0) for each in (_gathered, _own_part_of_sum))
    return _passed(value, group, there, back)


def scatters(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return own rows of the sum over a group: the way of own rows out of split layers."""
    there, back = (partial(each, dim=0) for each in (_own_part_of_sum, _gathered))
    return _passed(value, group, there, back)


def splits(value: torch.Tensor, group: ProcessGroup, dim: int = 0) -> torch.Tensor:
    """Return the own part of a tensor that all ranks have: the way into whole layers."""
    there, back = (partial(each, dim=dim) for each in (own_part, _gathered))
    return _passed(value, group, there, back)


def joins(value: torch.Tensor, group: ProcessGroup, dim: int = 0) -> torch.Tensor:
    """Return all ranks' parts of layers that each rank has whole: the way out of them."""
    there, back = (partial(each, dim=dim) for each in (_gathered, own_part))
    return _passed(value, group, there, back)
