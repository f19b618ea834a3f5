"""Sums that are scattered to owners: every rank gets one part of each bucket."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    LateAccumulationError,
    OwnedGradient,
    PlanMismatchError,
    StepFailedError,
    SynchronizerConfig,
)
from syncverify.synchronizer.hooks import bf16_error_feedback
from tests.programs import local, placed

SCATTER = SynchronizerConfig(mode="reduce_scatter")


def replicated(*shape: int) -> nn.Parameter:
    return distributed(torch.zeros(shape), Replicate())


def distributed(local: torch.Tensor, *placements) -> nn.Parameter:
    mesh_shape = (dist.get_world_size(),) if len(placements) == 1 else (2, 2)
    mesh = init_device_mesh("cpu", mesh_shape)
    return placed(local, mesh, *placements)


def contribute(parameter: nn.Parameter, factor: float) -> None:
    """Bring the gradient factor * (0, 1, 2, ...), counted in memory order."""
    each = local(parameter)
    weights = in_memory_order(torch.zeros_like(each.detach()))
    weights.copy_(torch.arange(weights.numel()) * factor)
    (each * weights.as_strided(each.shape, each.stride())).sum().backward()


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def described(owned: tuple[OwnedGradient, ...]) -> list[tuple]:
    return [(o.name, o.start_numel, o.values.numel()) for o in owned]


def test_each_rank_owns_one_part_of_a_bucket_and_the_sums_in_it(ranks) -> None:
    def program(rank: int) -> list[tuple]:
        a, b, c = (replicated(n) for n in (40, 100, 70))
        names = {a: "a", b: "b", c: "c"}
        found = []
        with GradientSynchronizer(
            [[a, b, c]], 1, 2, parameter_names=names, config=SCATTER
        ) as sums:
            for _ in range(2):
                for _ in range(2):
                    for each in reversed(names):
                        contribute(each, 2**rank)
                sums.wait()
                assert [each.grad for each in names] == [None] * 3
                owned = sums.owned_grads()
                assert owned
                for o in owned:
                    expected = torch.arange(o.parameter.numel()) * 6.0
                    end = o.start_numel + o.values.numel()
                    assert torch.equal(o.values, expected[o.start_numel : end])
                found.append(described(owned))
                sums.zero_grad()
                assert all(local(each.grad).eq(0).all() for each in names)
        assert found[0] == found[1]
        return found[0]

    # 70, 100 and 40 elements take 96, 128 and 64 with padding, 288; that is 320 in two
    # shards of multiples of 32 elements, 128 bytes.
    assert ranks.run(2, program) == [
        [("c", 0, 70), ("b", 0, 64)],
        [("b", 64, 36), ("a", 0, 40)],
    ]


def test_local_gradients_are_owned_whole_and_kept(ranks) -> None:
    def program(rank: int) -> list[tuple]:
        shared, sharded = replicated(3), distributed(torch.zeros(5), Shard(0))
        plain, frozen = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
        frozen.requires_grad = False
        names = {shared: "shared", sharded: "sharded", plain: "plain"}
        with GradientSynchronizer(
            [[*names, frozen]], 1, 1, parameter_names=names, config=SCATTER
        ) as sums:
            for each in names:
                contribute(each, rank + 1)
            sums.wait()
            assert shared.grad is None
            for each in (sharded, plain):
                expected = torch.arange(each.grad.numel()) * (rank + 1.0)
                if each is sharded:
                    expected = torch.arange(5) * (rank + 1.0)
                assert torch.equal(local(each.grad), expected)
            return described(sums.owned_grads())

    both = [("plain", 0, 2), ("sharded", 0, 5)]
    assert ranks.run(2, program) == [[*both, ("shared", 0, 3)], both]


def test_everything_is_owned_by_every_rank_after_an_all_reduce(ranks) -> None:
    def program(_: int) -> list[tuple]:
        a, b = replicated(40), replicated(2, 3)
        with GradientSynchronizer([[a, b]], 1, 1) as sums:
            contribute(a, 1)
            contribute(b, 1)
            sums.wait()
            b_owned, a_owned = sums.owned_grads()
            assert a_owned.values.data_ptr() == local(a.grad).data_ptr()
            assert torch.equal(b_owned.values, torch.arange(6) * 2.0)
            return [(o.start_numel, o.values.numel()) for o in (b_owned, a_owned)]

    assert ranks.run(2, program) == [[(0, 6), (0, 40)]] * 2


def test_flattened_means_in_memory_order(ranks) -> None:
    def program(rank: int) -> int:
        dense = torch.zeros(2, 8, 3, 5).to(memory_format=torch.channels_last)
        a = distributed(dense, Replicate())
        with GradientSynchronizer([[a]], 1, 1, config=SCATTER) as sums:
            assert local(a.grad).stride() == dense.stride() != (120, 15, 5, 1)
            contribute(a, 2**rank)
            sums.wait()
            (owned,) = sums.owned_grads()
            start, stop = owned.start_numel, owned.start_numel + owned.values.numel()
            assert torch.equal(owned.values, 3.0 * torch.arange(start, stop))
            with torch.no_grad():
                in_memory_order(local(a))[start:stop] += owned.values
            expected = torch.zeros(240)
            expected[start:stop] = 3.0 * torch.arange(start, stop)
            assert torch.equal(in_memory_order(local(a).detach()), expected)
        return start

    assert ranks.run(2, program) == [0, 128]


def test_scales_touch_what_is_owned_and_nothing_else(ranks) -> None:
    def program(rank: int) -> list[float]:
        a = distributed(torch.zeros(64), Shard(0), Replicate())
        with GradientSynchronizer([[a]], 1, 1, config=SCATTER) as sums:
            (bucket,) = sums._sequence.buckets
            local(a).sum().backward()
            sums.wait(scale=3)
            sums.scale_grads(torch.tensor(5))
            halves = bucket._buffer.chunk(2)
            assert halves[rank % 2].eq(2 * 3 * 5).all()
            return halves[1 - rank % 2].unique().tolist()

    assert ranks.run(4, program) == [[1.0]] * 4


def test_ranks_that_scatter_and_ranks_that_do_not_refuse_to_bind(ranks) -> None:
    def program(rank: int) -> list[str]:
        a = replicated(3)
        config = SCATTER if rank else SynchronizerConfig()
        synchronizer = GradientSynchronizer(
            [[a]], 1, 1, parameter_names={a: "a"}, config=config
        )
        with pytest.raises(PlanMismatchError) as caught:
            synchronizer.bind()
        return str(caught.value).splitlines()

    for lines in ranks.run(2, program):
        assert lines[0] == "ranks disagree about a"
        assert "at element 0 of 64, in 2 shards" in lines[2]


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ({"unused": "keep_none"}, "unused='keep_none'"),
        ({"comm_hook": bf16_error_feedback}, "a comm_hook"),
    ],
)
def test_what_needs_all_sums_refuses_a_part_of_them(option, what: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'all_reduce', which {what} req"):
        SynchronizerConfig(mode="reduce_scatter", **option)


def test_a_backward_into_scattered_sums_is_refused_until_zero_grad(two_ranks) -> None:
    a = replicated(3)
    with GradientSynchronizer([[a]], 1, 1, config=SCATTER) as sums:
        contribute(a, 1)
        sums.wait()
        with pytest.raises(LateAccumulationError):
            contribute(a, 1)
        with pytest.raises(StepFailedError):
            sums.owned_grads()
        sums.zero_grad()
        contribute(a, 1)
        sums.wait()


def test_the_plan_says_that_sums_are_scattered(two_ranks) -> None:
    plan = GradientSynchronizer([[replicated(3)]], 1, 1, config=SCATTER).explain()
    assert plan.collectives == (
        "reduce_scatter of 256 bytes of float32 over ranks 0, 1",
    )
    assert plan.buckets[0].num_shards == 2


def test_padding_is_below_one_percent_of_a_realistic_model() -> None:
    weights = [[nn.Parameter(torch.empty(2**16, device="meta")) for _ in range(100)]]
    dist.init_process_group("fake", rank=0, world_size=64, store=FakeStore())
    for mode in ("all_reduce", "reduce_scatter"):
        config = SynchronizerConfig(mode=mode, process_group=dist.group.WORLD)
        buckets = GradientSynchronizer(weights, 8, 1, config=config).explain().buckets
        payload = sum(bucket.payload_bytes for bucket in buckets)
        assert payload == 100 * 2**18
        assert sum(bucket.padding_bytes for bucket in buckets) * 100 < payload
    dist.destroy_process_group()
