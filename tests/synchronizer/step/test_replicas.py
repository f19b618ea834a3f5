"""Replicas that differ before training are made equal on request."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig


def test_parameters_and_buffers_of_the_lowest_rank_go_to_all(ranks) -> None:
    def program(rank: int) -> list[Any]:
        module = nn.BatchNorm1d(2)  # three buffers, one of them of integers
        module.num_batches_tracked.fill_(rank + 1)
        for each in (*module.parameters(), module.running_mean):
            nn.init.constant_(each, rank + 1)
        module.bias.requires_grad_(False)
        config = SynchronizerConfig(process_group=dist.group.WORLD)
        with GradientSynchronizer.from_module(module, 1, 1, config=config) as sums:
            sums.broadcast_replicas()
        return [each.flatten()[0].item() for each in module.state_dict().values()]

    assert ranks.run(2, program) == [[1, 1, 1, 1, 1]] * 2


@pytest.mark.slow
def test_shards_go_along_the_axes_that_replicate_them(ranks) -> None:
    def program(rank: int) -> list[float]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        local = torch.full((2,), float(rank))
        group = [
            nn.Parameter(DTensor.from_local(local.clone(), mesh, each, run_check=False))
            for each in (
                (Replicate(), Shard(0)),
                (Replicate(), Replicate()),
                (Shard(0), Shard(0)),
            )
        ]
        group.append(nn.Parameter(local.clone()))  # plain, without a process group
        config = SynchronizerConfig(axis_reductions={"tp": "none"})
        with GradientSynchronizer([group], 1, 1, config=config) as sums:
            sums.broadcast_replicas()
        locals_ = [p.to_local() if isinstance(p, DTensor) else p for p in group]
        return [each[0].item() for each in locals_]

    found = ranks.run(4, program)
    assert found == [[rank % 2, 0, rank, rank] for rank in range(4)]
