"""FSDP2 sums over a replicated axis itself; a second sum would double gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from syncverify.synchronizer import (
    BucketNotReadyError,
    GradientSynchronizer,
    SynchronizerConfig,
    UnsupportedPlacementError,
)
from syncverify.synchronizer.ranks.fsdp import ranks_summed_by_fsdp
from tests.programs import local


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


def accumulate_on_one_rank(model: nn.Module, config: SynchronizerConfig) -> None:
    """Two steps of two micro-batches; inputs need no gradient, so FSDP2 reduces at the end."""
    inputs = torch.arange(1.0, 9).view(2, 4)
    synchronizer = GradientSynchronizer.from_module(model, 1, 2, config=config)
    with synchronizer as sums:
        for _ in range(2):
            model(inputs).sum().backward()
            with pytest.raises(BucketNotReadyError):
                sums.wait()
            once = [local(p.grad).clone() for p in model.parameters()]
            model(inputs).sum().backward()
            sums.wait()
            for parameter, gradient in zip(model.parameters(), once, strict=True):
                assert gradient.count_nonzero()
                assert torch.equal(local(parameter.grad), 2 * gradient)
            sums.zero_grad()


@pytest.mark.parametrize("unused", ["error", "zeros"])
@pytest.mark.parametrize("shards", ["first", "last", "both", "whole"])
def test_fsdp_may_reduce_when_backward_has_ended(shards: str, unused: Any) -> None:
    """FSDP2's callback at the end of backward brings the first or the last gradient."""
    dist.destroy_process_group()
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("shard",))
    first, last = model
    modules = {
        "first": [first],
        "last": [last],
        "both": [first, last, model],
        "whole": [model],
    }
    for module in modules[shards]:
        fully_shard(module, mesh=mesh)
    accumulate_on_one_rank(model, SynchronizerConfig(unused=unused))
