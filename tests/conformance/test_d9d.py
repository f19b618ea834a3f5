"""d9d's own tests of its synchronizer and of its gradient norm, on a CPU."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Placement, Replicate, Shard

from syncverify.synchronizer import (
    BucketNotReadyError,
    GradientSynchronizer,
    SynchronizerConfig,
)
from tests.conformance.training import refused
from tests.programs import placed

SOME_ARE_SHARDED = [
    ((8, 1), Shard(0)),
    ((151, 55), Replicate()),
    ((1, 8), Shard(1)),
    ((8, 16), Replicate()),
]
ALL_ARE_REPLICATED = [
    (shape, Replicate()) for shape in ((10, 2), (151, 55), (2, 3, 4, 5), (8, 16))
]


def parameter(
    mesh: DeviceMesh, shape: tuple[int, ...], *placements: Placement, dtype: Any
) -> nn.Parameter:
    local = torch.ones(shape, dtype=dtype)
    return placed(local, mesh, *placements)


def holds(parameter: nn.Parameter, value: float, dtype: Any) -> bool:
    local = parameter.grad.to_local()
    return local.dtype == dtype and bool(local.eq(value).all())


@pytest.mark.parametrize("specs", [SOME_ARE_SHARDED, ALL_ARE_REPLICATED])
@pytest.mark.parametrize(
    ("dtype", "grad_dtype"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
    ],
)
def test_five_steps_of_two_accumulations(play, specs, dtype, grad_dtype) -> None:
    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        group = [parameter(mesh, *spec, dtype=dtype) for spec in specs]
        for each in group:
            each.grad_dtype = grad_dtype
        sums = GradientSynchronizer([group], 2, 2)
        sums.bind()
        for _ in range(5):
            assert all(holds(each, 0, grad_dtype) for each in group)
            accumulate(group, rank + 1)
            with refused(BucketNotReadyError, "2 accumulations each"):
                sums.wait()
            assert all(holds(each, rank + 1, grad_dtype) for each in group)
            accumulate(group, rank + 1)
            sums.wait()
            for each, (_, placement) in zip(group, specs, strict=True):
                total = 2 * (rank + 1) if placement.is_shard() else 2 * 3
                assert holds(each, total, grad_dtype)
            sums.zero_grad()
        sums.unbind()
        for each in group:
            assert not each._post_accumulate_grad_hooks
            assert each.grad is None

    play(2, program)


def accumulate(group: list[nn.Parameter], factor: float) -> None:
    for each in group:
        (each.to_local() * factor).sum().backward()


def test_the_norm_of_stages_and_shards(play) -> None:
    """Replicated parameters count once, shards together, and stages together."""

    def program(rank: int) -> None:
        axes = ("pp", "ep_replicate", "ep_shard")
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=axes)
        experts, stages = mesh["ep_replicate", "ep_shard"], mesh["pp"].get_group()
        is_first = mesh["pp"].get_local_rank() == 0
        last_axis = Replicate() if is_first else Shard(1)
        one = parameter(experts, (8, 8), Replicate(), last_axis, dtype=torch.float64)
        config = SynchronizerConfig(
            axis_reductions={"ep_replicate": "avg", "ep_shard": "avg"}
        )
        with GradientSynchronizer([[one]], 1, 1, config=config) as sums:
            one.to_local().sum().backward()
            sums.wait()
            norm = (64 + 128) ** 0.5
            assert sums.grad_norm(stages=stages).item() == norm
            sums.clip_grad_norm_(1.0, stages=stages)
            torch.testing.assert_close(
                one.grad.to_local(), torch.full((8, 8), 1 / norm).double()
            )

    play(8, program)


def test_the_norm_of_nothing_is_zero(play) -> None:
    def program(_: int) -> None:
        with GradientSynchronizer([[]], 1, 1) as sums:
            sums.flush()
            sums.wait()
            assert sums.clip_grad_norm_(1.0).item() == 0

    play(1, program)
