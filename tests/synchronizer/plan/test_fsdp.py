"""FSDP2 sums over a replicated axis itself; a second sum would double gradients."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from syncverify.synchronizer import (
    GradientSynchronizer,
    SynchronizerConfig,
    UnsupportedPlacementError,
)
from syncverify.synchronizer.ranks.fsdp import ranks_summed_by_fsdp


@pytest.fixture(autouse=True)
def _four_ranks() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def sharded(shape: tuple[int, ...], names: tuple[str, ...]) -> nn.Linear:
    model = nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
    return model


def test_both_sum_over_the_replicated_axis() -> None:
    model = sharded((2, 2), ("replicate", "shard"))
    with pytest.raises(UnsupportedPlacementError) as caught:
        GradientSynchronizer([[*model.parameters()]], 1, 1).bind()
    lines = str(caught.value).splitlines()
    assert "would be summed twice" in lines[0]
    assert lines[2].endswith("FSDP2 or replicate() sums over ranks 0, 2 in backward")


def test_the_axis_may_be_left_to_fsdp() -> None:
    model = sharded((2, 2), ("replicate", "shard"))
    config = SynchronizerConfig(axis_reductions={"replicate": "none"})
    bound = GradientSynchronizer([[*model.parameters()]], 1, 1, config=config)
    bound.bind()
    assert [bucket.ranks for bucket in bound.explain().buckets] == [()]
    bound.unbind()


def test_replicate_sums_by_itself() -> None:
    model = nn.Linear(4, 4)
    replicate(model, mesh=init_device_mesh("cpu", (4,)))
    assert {*ranks_summed_by_fsdp([*model.parameters()]).values()} == {(0, 1, 2, 3)}
    with pytest.raises(UnsupportedPlacementError, match="summed twice"):
        GradientSynchronizer([[*model.parameters()]], 1, 1).bind()


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_a_sharded_axis_is_no_sum(shape: tuple[int, ...]) -> None:
    model = sharded(shape, ("replicate", "shard")[-len(shape) :])
    assert ranks_summed_by_fsdp([*model.parameters()]) == {}
    GradientSynchronizer([[*model.parameters()]], 1, 1).bind()


def test_the_facts_about_fsdp() -> None:
    model = sharded((2, 2), ("replicate", "shard"))
    summed = ranks_summed_by_fsdp([*model.parameters(), nn.Parameter()])
    assert {*map(id, summed)} == {*map(id, model.parameters())}
    assert {*summed.values()} == {(0, 2)}
