"""Whole tensors that are put together after a run equal those of torch's own collectives."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)

from syncverify import simulate
from syncverify.judge.whole_step.shards import KeptParts, fill, whole

PLACEMENTS = [
    (Shard(0), Replicate()),
    (Replicate(), Shard(1)),
    (Shard(0), Shard(0)),
    (Shard(1), Shard(0)),
    (Replicate(), Replicate()),
]
Found = tuple[list[torch.Tensor], list[torch.Tensor], KeptParts]


def _kept(tensors: list[DTensor]) -> Found:
    kept = KeptParts()
    ours = [whole(each, number, kept) for number, each in enumerate(tensors)]
    return ours, [each.full_tensor().clone() for each in tensors], kept


def placed() -> Found:
    """Return tensors of all placements, even and uneven, and one that is a sum of parts."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    tensors = [
        distribute_tensor(torch.arange(3.0 * rows).view(rows, 3), mesh, placements)
        for rows in (8, 5, 1)
        for placements in PLACEMENTS
    ]
    ones = torch.ones(4, 3) * (torch.distributed.get_rank() + 1)
    tensors.append(DTensor.from_local(ones, mesh, (Partial(), Replicate())))
    return _kept(tensors)


def strided() -> Found:
    """Return weights that tensor parallelism splits first, and FSDP2 again on one dimension."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    tensors = list[DTensor]()
    for rows in (8, 7, 5, 3):
        layer = nn.Linear(3, rows, bias=False)
        values = torch.arange(3.0 * rows).view(rows, 3)
        layer.weight = nn.Parameter(distribute_tensor(values, mesh["tp"], [Shard(0)]))
        fully_shard(layer, mesh=mesh["dp"])
        assert isinstance(layer.weight, DTensor)
        tensors.append(layer.weight.detach())
    return _kept(tensors)


@pytest.mark.long
@pytest.mark.parametrize("program", [placed, strided])
def test_parts_add_up_to_the_tensor_of_full_tensor(program: object) -> None:
    ranks = simulate(program, 4).results  # type: ignore[arg-type]
    assert len(ranks) == 4
    fill([kept for _, _, kept in ranks])
    for ours, theirs, kept in ranks:
        assert kept  # else `full_tensor()` was asked for all of them
        for one, two in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=0)
