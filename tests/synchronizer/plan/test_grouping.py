"""Planning: parameters of a bucket, their order and their offsets."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from syncverify.synchronizer import SynchronizerConfig, UnsupportedPlacementError
from syncverify.synchronizer.plan.grouping import BucketPlan, local_tensor, plan_buckets
from syncverify.synchronizer.ranks.scope import spanned_ranks
from tests import programs


def parameter(*shape: int, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=dtype))


def plan(
    *groups: list[nn.Parameter], cap_bytes: float = 2**20
) -> tuple[BucketPlan, ...]:
    return plan_buckets(groups, bucket_cap_bytes=cap_bytes, parameter_names={})


def members(plans: tuple[BucketPlan, ...]) -> list[list[nn.Parameter]]:
    return [[member.parameter for member in bucket.members] for bucket in plans]


def same(found: list[list[nn.Parameter]], expected: list[list[nn.Parameter]]) -> bool:
    return [list(map(id, b)) for b in found] == [list(map(id, b)) for b in expected]


@pytest.fixture
def on_rank() -> Iterator[Callable[[int, int], None]]:
    """Become one rank of a world without communication."""

    def become(rank: int, world_size: int) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group(
            "fake", rank=rank, world_size=world_size, store=FakeStore()
        )

    yield become
    dist.destroy_process_group()


def shard(mesh: DeviceMesh, numel: int, *placements: Placement) -> nn.Parameter:
    return programs.parameter(mesh, *placements, numel=numel)


def test_the_cap_counts_bytes_of_the_gradient_dtype() -> None:
    a, b = parameter(8, dtype=torch.bfloat16), parameter(8, dtype=torch.bfloat16)
    assert len(plan([a, b], cap_bytes=32)) == 1
    a.grad_dtype = b.grad_dtype = torch.float32
    (first, second) = plan([a, b], cap_bytes=32)
    assert first.key.grad_dtype == second.key.grad_dtype == torch.float32


def test_a_bucket_is_placed_by_its_last_member() -> None:
    a, b, c = parameter(1), parameter(1, dtype=torch.float64), parameter(1)
    assert same(members(plan([a, b, c])), [[b], [c, a]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex128])
def test_views_start_at_multiples_of_their_size_up_to_128_bytes(
    dtype: torch.dtype,
) -> None:
    shapes = ((33,), (), (0, 3), (5, 7), (3,))
    (bucket,) = plan([parameter(*shape, dtype=dtype) for shape in shapes])
    for offset, member in zip(bucket.offsets_numel, bucket.members, strict=True):
        num_bytes = member.local_numel * dtype.itemsize
        boundary = min((b for b in (16, 32, 64, 128) if num_bytes <= b), default=128)
        assert offset * dtype.itemsize % boundary == 0
    ends = [
        offset + member.local_numel
        for offset, member in zip(bucket.offsets_numel, bucket.members, strict=True)
    ]
    starts = [*bucket.offsets_numel[1:], bucket.buffer_numel]
    assert all(end <= start for end, start in zip(ends, starts, strict=True))
    assert bucket.buffer_numel * dtype.itemsize % 128 == 0


def test_many_scalars_take_little_more_than_their_bytes() -> None:
    (bucket,) = plan([parameter() for _ in range(2000)])
    assert bucket.buffer_numel == 4 * 2000


def test_spanned_ranks_ascend_whatever_order_the_mesh_has_them_in(
    on_rank: Callable[[int, int], None],
) -> None:
    on_rank(2, 4)
    mesh = DeviceMesh("cpu", [[3, 1], [2, 0]])
    assert spanned_ranks(mesh, (0,)) == (2, 3)
    assert spanned_ranks(mesh, (0, 1)) == (0, 1, 2, 3)


def test_a_mesh_without_this_rank_needs_no_communication(
    on_rank: Callable[[int, int], None],
) -> None:
    on_rank(3, 4)
    mesh = DeviceMesh("cpu", [0, 1])
    a, plain = shard(mesh, 4, Replicate()), parameter(4)
    for word in ("sum", "avg", "none"):
        (bucket,) = plan_buckets(
            [[a, plain]],
            bucket_cap_bytes=1000,
            parameter_names={},
            config=SynchronizerConfig(axis_reductions={0: word}),
        )
        assert bucket.scope is None


def test_a_bucket_of_empty_shards_needs_no_communication(
    on_rank: Callable[[int, int], None],
) -> None:
    on_rank(0, 4)
    mesh = init_device_mesh("cpu", (2, 2))
    (bucket,) = plan([shard(mesh, 0, Shard(0), Replicate())])
    assert bucket.scope is None


def test_a_partial_parameter_is_refused_by_name(
    on_rank: Callable[[int, int], None],
) -> None:
    on_rank(1, 2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    a = shard(mesh, 4, Partial())
    with pytest.raises(UnsupportedPlacementError) as caught:
        plan_buckets([[a]], bucket_cap_bytes=1000, parameter_names={a: "a"})
    assert str(caught.value).splitlines() == [
        "parameter a has a placement that cannot be synchronized",
        "  expected: Replicate or Shard on every mesh axis",
        "  got:      placement P(sum) on mesh axis 0",
        "  where:    rank 1 of 2, mesh axes ('dp',)",
        "  hint: redistribute the parameter before bind(), or change the axis_reductions",
    ]


def test_ranks_that_share_buckets_launch_them_in_one_order(
    on_rank: Callable[[int, int], None],
) -> None:
    """Uneven shards cut other buckets on other ranks; sharers must still agree."""
    orders = {}
    for rank in range(8):
        on_rank(rank, 8)
        mesh = init_device_mesh("cpu", (2, 2, 2))
        x, y, z = mesh.get_coordinate() or (0, 0, 0)
        parameters = []
        for _ in range(3):
            parameters += [
                shard(mesh, 3 + 2 * x, Shard(0), Replicate(), Replicate()),
                shard(mesh, 4, Replicate(), Replicate(), Replicate()),
                shard(mesh, 3 + 2 * y, Replicate(), Shard(0), Replicate()),
                shard(mesh, 2 + 3 * z, Replicate(), Replicate(), Shard(0)),
            ]
        position = {id(p): i for i, p in enumerate(parameters)}
        orders[rank] = [
            (b.scope.ranks, tuple(position[id(m.parameter)] for m in b.members))
            for b in plan(parameters, cap_bytes=32)
            if b.scope
        ]
    assert len({len(order) for order in orders.values()}) > 1, "shards are uneven"
    waiting = {rank: list(order) for rank, order in orders.items()}
    while any(waiting.values()):
        heads = {rank: order[0] for rank, order in waiting.items() if order}
        ready = [h for h in heads.values() if all(heads.get(r) == h for r in h[0])]
        assert ready, f"ranks wait for each other: {heads}"
        for rank in ready[0][0]:
            waiting[rank].pop(0)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_local_part_is_outside_of_any_graph(
    on_rank: Callable[[int, int], None],
    mode: Callable[[], AbstractContextManager[None]],
) -> None:
    on_rank(0, 2)
    mesh = init_device_mesh("cpu", (2,))
    with mode():
        part = local_tensor(shard(mesh, 4, Replicate()))
    assert not part.requires_grad
    assert part.is_leaf
