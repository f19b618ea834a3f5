"""Parameters on a mesh: replicated over one axis, sharded over the other."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils.checkpoint import checkpoint

from syncverify.synchronizer import GradientSynchronizer
from tests.conformance.training import inputs_of, layers, mean_over_ranks

SHARDED = {"0.weight": Shard(0), "1.weight": Shard(1)}


def parallelize(model: nn.Module, mesh: DeviceMesh) -> None:
    """Shard the first layer by its outputs and the second one by its inputs."""
    for name, parameter in [*model.named_parameters()]:
        placements = [Replicate(), SHARDED[name]]
        part = distribute_tensor(parameter.detach(), mesh, placements)
        model.get_submodule(name[0]).weight = nn.Parameter(part)


@pytest.mark.long
@pytest.mark.parametrize(("width", "is_checkpointed"), [(16, False), (17, True)])
def test_tensor_parallel_layers(play, width, is_checkpointed) -> None:
    def losses(model: Any, owner: int):
        yield model(inputs_of(owner, 4, 10)).sum()

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        model = layers(10, width, 6, bias=False)
        expected = mean_over_ranks(model, losses)
        parallelize(model, mesh)
        with GradientSynchronizer.from_module(model, 1, 1) as synchronizer:
            for _ in range(2):
                local = inputs_of(rank // 2, 4, 10)
                inputs = DTensor.from_local(local, mesh, [Shard(0), Replicate()])
                output = (
                    checkpoint(model, inputs, use_reentrant=False)
                    if is_checkpointed
                    else model(inputs)
                )
                whole = output.redistribute(placements=[Shard(0), Replicate()])
                whole.to_local().sum().backward()
                synchronizer.wait(scale=0.5)
                for name, parameter in model.named_parameters():
                    assert torch.equal(parameter.grad.full_tensor(), expected[name])
                synchronizer.zero_grad()

    play(4, program)
