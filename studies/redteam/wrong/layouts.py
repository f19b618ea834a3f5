"""Collectives move memory in the order in which it lies."""

from __future__ import annotations

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.program import wrong
from studies.redteam.wrong.sizes import local_of, reduce_groups_of
from syncverify.bugbank.bases.plain_grads import PlainGrads


@wrong(trigger="2 ranks, a transposed gradient", needs=("memory_format=transposed",))
class GathersTransposed(PlainGrads):
    """Transposed gradients are gathered into row-major memory."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        for group in reduce_groups_of(gradient):
            parts = [
                torch.empty(part.shape, dtype=part.dtype) for _ in range(group.size())
            ]
            dist.all_gather(parts, part, group=group)
            part.copy_(torch.stack(parts).sum(0))


@wrong(trigger="2 ranks, a transposed gradient", needs=("memory_format=transposed",))
class ScattersTransposed(PlainGrads):
    """The root's transposed sum is broadcast into row-major memory."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        for group in reduce_groups_of(gradient):
            dist.all_reduce(part, group=group)
            root = dist.get_global_rank(group, 0)
            received = part if dist.get_rank() == root else part.contiguous()
            dist.broadcast(received, root, group=group)
            part.copy_(received)


@wrong(trigger="2 ranks, transposed on one rank", needs=("memory_format=transposed",))
class ReducesMixedLayouts(PlainGrads):
    """Odd ranks reduce a row-major copy, even ranks the transposed gradient itself."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        part = local_of(gradient)
        for group in reduce_groups_of(gradient):
            sent = part.contiguous() if group.rank() % 2 else part
            dist.all_reduce(sent, group=group)
            part.copy_(sent)
