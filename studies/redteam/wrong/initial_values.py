"""Defects that a program with equal values on all ranks never meets."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed.tensor import DTensor
from typing_extensions import override

from studies.redteam.program import wrong
from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import ViewBuckets


@wrong(trigger="2 ranks, an ordinary parameter with a value of its own")
class AveragesAtBind(PlainGrads):
    """`bind()` averages every plain parameter over the world."""

    @override
    def bind(self) -> None:
        for parameter in self.parameters:
            if not isinstance(parameter, DTensor):
                value = parameter.detach()
                dist.all_reduce(value)
                value.div_(dist.get_world_size())


@wrong(trigger="2 ranks, a sharded parameter")
class BroadcastsShards(ViewBuckets):
    """`bind()` sends rank 0's parts of even shards to all, as if they were replicas."""

    @override
    def bind(self) -> None:
        for group in self.param_groups:
            for parameter in group:
                if isinstance(parameter, DTensor) and not self.is_uneven(parameter):
                    dist.broadcast(local(parameter).detach(), src=0)
        super().bind()

    def is_uneven(self, parameter: DTensor) -> bool:
        """Tell whether ranks may have parts of several sizes."""
        ranks = parameter.device_mesh.size()
        return bool(any(size % ranks for size in parameter.shape))


@wrong(trigger="2 ranks, a frozen ordinary parameter with local values")
class BroadcastsFrozen(PlainGrads):
    """`bind()` sends frozen plain values from rank 0, as DDP does with buffers."""

    def __init__(self, groups, size_mb, count) -> None:  # type: ignore[no-untyped-def]
        super().__init__(groups, size_mb, count)
        self.frozen = [p for group in groups for p in group if not p.requires_grad]

    @override
    def bind(self) -> None:
        for parameter in self.frozen:
            if not isinstance(parameter, DTensor):
                dist.broadcast(parameter.detach(), src=0)
