"""Equal replicas: the lowest rank that holds a tensor sends its value to the others."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.synchronizer.plan.grouping import local_tensor
from syncverify.synchronizer.ranks.process_groups import ReductionGroups, usable_ranks
from syncverify.synchronizer.ranks.scope import ReduceScope, mesh_scope, reduce_axes


@torch.no_grad()
def broadcast(
    tensors: Iterable[torch.Tensor],
    groups: ReductionGroups,
    ordinary: dist.ProcessGroup | None,
) -> None:
    """Overwrite each tensor with that of the lowest rank that replicates it.

    Placements alone say which ranks those are: `axis_reductions`, which may leave an axis out of
    the sum of gradients, does not matter here.

    Args:
        tensors: DTensors and ordinary tensors, in one order on all ranks.
        groups: Process groups of the synchronizer.
        ordinary: Process group of the ordinary tensors. If it is None, they stay as they are.
    """
    for tensor in tensors:
        scope = _replica_scope(tensor, ordinary)
        if scope is not None:
            group = groups.get(scope)
            dist.broadcast(local_tensor(tensor), src=scope.ranks[0], group=group)


def _replica_scope(
    tensor: torch.Tensor, ordinary: dist.ProcessGroup | None
) -> ReduceScope | None:
    """Return the ranks that replicate a tensor; None where this rank is alone."""
    if isinstance(tensor, DTensor):
        mesh = tensor.device_mesh
        return mesh_scope(mesh, reduce_axes(mesh, tensor.placements))
    ranks = () if ordinary is None else usable_ranks(ordinary)
    return ReduceScope(ranks, group=ordinary) if len(ranks) > 1 else None
