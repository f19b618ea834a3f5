"""Process groups: which ranks they have, and that none outlives its synchronizer."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from syncverify.synchronizer.ranks import process_groups
from syncverify.synchronizer.ranks.process_groups import ReductionGroups, usable_ranks
from syncverify.synchronizer.ranks.scope import ReduceScope, reduce_axes, shard_axes


def test_ranks_come_in_ascending_order_however_the_group_numbers_them(
    two_ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`new_group(sort_ranks=False)` keeps the caller's order."""
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda _: [1, 0])
    assert usable_ranks(dist.group.WORLD) == (0, 1)


def test_a_group_of_an_earlier_default_group_is_gone_with_it(two_ranks) -> None:
    mesh = init_device_mesh("cpu", (2, 1))
    groups = ReductionGroups()
    groups.get(ReduceScope((0, 1), mesh, (0, 1)))
    dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    groups.destroy()
    assert dist.get_process_group_ranks(dist.group.WORLD) == [0, 1]


def test_a_group_is_made_without_its_non_members_and_with_the_timeout_of_the_default_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a `device_id`, torch splits the default communicator, which all ranks must join."""
    made: list[Any] = []

    def make(*_: object, timeout: timedelta, **__: object) -> tuple[object, None]:
        made.append((default.bound_device_id, timeout))
        return default, None

    dist.init_process_group(
        "gloo",
        store=dist.HashStore(),
        rank=0,
        world_size=1,
        timeout=timedelta(seconds=77),
    )
    default = dist.distributed_c10d._get_default_group()
    device = default.bound_device_id = torch.device("cpu", 0)
    monkeypatch.setattr(dist.distributed_c10d, "_new_process_group_helper", make)
    process_groups._create_group((0,))
    assert made == [(None, timedelta(seconds=77))]
    assert default.bound_device_id == device
    monkeypatch.undo()
    dist.destroy_process_group()


def test_an_axis_of_one_rank_spreads_nothing(two_ranks) -> None:
    """An existing group of the other axis serves then, and no new group is made."""
    mesh = init_device_mesh("cpu", (2, 1))
    assert shard_axes(mesh, [Shard(0), Shard(0)]) == (0,)
    assert reduce_axes(mesh, [Replicate(), Replicate()]) == (0,)
