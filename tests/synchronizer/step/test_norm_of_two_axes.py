"""The norm of parameters that are sharded over two axes of a mesh, where d9d 0.24 raises."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from tests.programs import placed


def parameter(
    mesh: DeviceMesh, values: torch.Tensor, *placements: Placement
) -> nn.Parameter:
    return placed(values, mesh, *placements)


BOTH_AXES = [(Shard(0), Shard(1)), (Shard(0), Shard(0)), (Shard(1), Shard(0))]


def norms_of(shape: tuple[int, int], placements: tuple[Shard, ...]) -> Any:
    """Clip a parameter that two axes shard, with gradients that are whole numbers."""
    names = ("dp_shard", "ep_shard")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    whole = torch.arange(-20.0, 28).view(4, 12).double()
    weights = distribute_tensor(whole, mesh, placements, src_data_rank=None).to_local()
    one = parameter(mesh, torch.zeros_like(weights), *placements)
    few = torch.zeros(3, dtype=torch.float64)
    replicated = parameter(mesh, few, Replicate(), Replicate())
    config = SynchronizerConfig(axis_reductions=dict.fromkeys(names, "avg"))
    with GradientSynchronizer([[one, replicated]], 1, 1, config=config) as sums:
        ((one.to_local() * weights).sum() + replicated.to_local().sum() * 2).backward()
        sums.wait()
        norms = [sums.grad_norm(p).item() for p in (1.0, 2.0, float("inf"))]
        norms.append(sums.clip_grad_norm_(4.0).item())
        clipped = one.grad.full_tensor(), replicated.grad.to_local()
        return norms, [each.tolist() for each in clipped]


@pytest.mark.parametrize("placements", BOTH_AXES)
@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 4)])
def test_the_norm_over_two_sharded_axes_is_that_of_one_rank(
    ranks, shape, placements
) -> None:
    found = ranks.run(4, lambda _: norms_of(shape, placements))
    (alone,) = ranks.run(1, lambda _: norms_of((1, 1), placements))
    assert found == [alone] * 4


def test_d9d_refuses_a_norm_over_two_sharded_axes(ranks) -> None:
    """docs/in-d9d.md says so of d9d 0.24; the test above clips the same kind of gradients."""
    reason = "pip install --no-deps d9d==0.24.0"
    theirs = pytest.importorskip("d9d.internals.grad_norm", reason=reason)

    def program(_: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        one = parameter(mesh, torch.zeros(2, 2), Shard(0), Shard(1))
        one.grad = torch.ones_like(one)
        groups = theirs.group_parameters_for_norm([one])
        with pytest.raises(ValueError, match="more than one mesh dimension"):
            theirs.clip_grad_norm_distributed_(groups, 1.0, 2.0, None)

    ranks.run(4, program)
