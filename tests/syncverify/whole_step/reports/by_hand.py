"""The ways in which a collective passes a gradient back, as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from typing_extensions import override

Way = Callable[[torch.Tensor, ProcessGroup], torch.Tensor]


def summed(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return the sum of a tensor over a group."""
    total = value.detach().clone()
    dist.all_reduce(total, group=group)
    return total


def _same(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    return value.detach().clone()


def _gathered(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    parts = [torch.empty_like(value) for _ in range(group.size())]
    dist.all_gather(parts, value.detach().contiguous(), group=group)
    return torch.cat(parts)


def _own_rows(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    return value.detach().chunk(group.size())[group.rank()].clone()


def _own_rows_of_sum(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    return _own_rows(summed(value, group), group)


class _Collective(torch.autograd.Function):
    @staticmethod
    @override
    def forward(
        ctx: Any, value: torch.Tensor, group: ProcessGroup, there: Way, back: Way
    ) -> torch.Tensor:
        ctx.group, ctx.back = group, back
        return there(value, group)

    @staticmethod
    @override
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return ctx.back(gradients[0], ctx.group), None, None, None


def _passed(
    value: torch.Tensor, group: ProcessGroup, there: Way, back: Way
) -> torch.Tensor:
    result: torch.Tensor = _Collective.apply(value, group, there, back)  # type: ignore[no-untyped-call]
    return result


def sums_gradient(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return a tensor whose gradient is summed: the way of equal rows into split layers."""
    return _passed(value, group, _same, summed)


def sums(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return the sum over a group: the way of equal rows out of split layers."""
    return _passed(value, group, summed, _same)


def gathers(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return all ranks' rows: the way of own rows into split layers."""
    return _passed(value, group, _gathered, _own_rows_of_sum)


def scatters(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return own rows of the sum over a group: the way of own rows out of split layers."""
    return _passed(value, group, _own_rows_of_sum, _gathered)


def splits(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return own rows of a tensor that all ranks have: the way into whole layers."""
    return _passed(value, group, _own_rows, _gathered)


def joins(value: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return all ranks' rows of layers that each rank has whole: the way out of them."""
    return _passed(value, group, _gathered, _own_rows)
