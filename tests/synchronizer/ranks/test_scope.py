"""Mesh axes that a parameter spans."""

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard

from syncverify.synchronizer.ranks.scope import reduce_axes, shard_axes


def test_an_axis_of_one_rank_spreads_nothing(two_ranks) -> None:
    """An existing group of the other axis serves then, and no new group is made."""
    mesh = init_device_mesh("cpu", (2, 1))
    assert shard_axes(mesh, [Shard(0), Shard(0)]) == (0,)
    assert reduce_axes(mesh, [Replicate(), Replicate()]) == (0,)
