"""Parameters that the loss does not depend on, on some or all ranks."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

from syncverify.synchronizer import (
    BucketNotReadyError,
    GradientSynchronizer,
    LateAccumulationError,
    SynchronizerConfig,
)
from tests.programs import accumulate, lines, parameter, value

KIB_MB = 2**-10


def plain() -> nn.Parameter:
    return nn.Parameter(torch.zeros(3))


def over(
    *group: nn.Parameter, unused: str, size_mb: float = 1, count: int = 1
) -> GradientSynchronizer:
    config = SynchronizerConfig(unused=unused)
    return GradientSynchronizer([[*group]], size_mb, count, config=config)


@pytest.mark.parametrize(("unused", "nothing"), [("zeros", 0), ("keep_none", None)])
@pytest.mark.parametrize("bucket_size_mb", [1, KIB_MB])
def test_only_what_no_rank_used_is_nothing(ranks, unused, nothing, bucket_size_mb):
    def program(rank: int) -> list[Any]:
        mesh = init_device_mesh("cpu", (2,))
        everywhere, nowhere, here = (parameter(mesh, numel=512) for _ in range(3))
        shard, local = parameter(mesh, Shard(0)), plain()
        group = [everywhere, nowhere, here, shard, local]
        found = []
        with over(*group, unused=unused, size_mb=bucket_size_mb) as synchronizer:
            for each in group:  # a parameter used in one step may be unused in the next
                accumulate(each, 1)
            synchronizer.flush()
            synchronizer.wait()
            synchronizer.zero_grad()
            for _ in range(2):
                loss = everywhere.to_local().sum() * 2**rank
                if rank:
                    loss = loss + here.to_local().sum() * 10
                    loss = loss + shard.to_local().sum() + local.sum()
                loss.backward()
                synchronizer.wait()
                synchronizer.wait()
                found.append([value(each) for each in group])
                synchronizer.zero_grad()
            found.append([value(each) for each in group])
        return found

    on_rank = {
        0: [3, nothing, 10, nothing, nothing],
        1: [3, nothing, 10, 1, 1],
    }
    for rank, found in enumerate(ranks.run(2, program)):
        assert found == [on_rank[rank], on_rank[rank], [0] * 5]


@pytest.mark.parametrize("unused", ["zeros", "keep_none"])
def test_gradients_from_no_sync_are_used(ranks, unused):
    def program(rank: int) -> list[float | None]:
        mesh = init_device_mesh("cpu", (2,))
        a, b = parameter(mesh), parameter(mesh)
        with over(a, b, unused=unused) as synchronizer:
            with synchronizer.no_sync():
                accumulate(b, 5)
            accumulate(a, 1)
            synchronizer.wait()
            return [value(a), value(b)]

    assert ranks.run(2, program) == [[2, 10]] * 2


def test_a_gradient_from_before_bind_is_kept(ranks):
    def program(rank: int) -> float | None:
        a, b = plain(), plain()
        accumulate(b, 4)
        with over(a, b, unused="keep_none") as synchronizer:
            accumulate(a, 1)
            synchronizer.wait()
            return value(b)

    assert ranks.run(1, program) == [4]


@pytest.mark.parametrize("unused", ["zeros", "keep_none"])
def test_no_policy_forgives_a_missing_backward(unused) -> None:
    a, b = plain(), plain()
    with over(a, b, unused=unused, count=2) as synchronizer:
        accumulate(a, 1)
        with pytest.raises(BucketNotReadyError) as caught:
            synchronizer.wait()
        assert lines(caught) == [
            "wait() was called before every backward of the step",
            "  expected: 2 backwards (require_accumulations=2)",
            "  got:      1",
            "  where:    rank 0 of 1, bucket 0",
            f"  hint: {BucketNotReadyError.hint}",
        ]
        synchronizer.flush()
        synchronizer.wait()
        assert (value(a), value(b)) == (1, 0 if unused == "zeros" else None)
        with pytest.raises(LateAccumulationError):
            accumulate(b, 1)
        synchronizer.zero_grad()
        accumulate(a, 1)
        with pytest.raises(BucketNotReadyError, match="got:      1"):
            synchronizer.wait()


def test_scales_pass_over_what_is_none() -> None:
    a, b = plain(), plain()
    with over(a, b, unused="keep_none") as synchronizer:
        accumulate(a, 3)
        synchronizer.wait(scale=2)
        synchronizer.scale_grads(2)
        assert (value(a), value(b)) == (12, None)


def test_flags_are_part_of_the_plan(ranks) -> None:
    def program(_: int) -> list[int]:
        a = parameter(init_device_mesh("cpu", (2,)), numel=32)
        return [
            over(a, unused=unused).explain().buckets[0].padding_bytes
            for unused in ("error", "zeros", "keep_none")
        ]

    assert ranks.run(2, program)[0] == [0, 0, 128]


def test_ranks_agree_on_gradients_without_elements(ranks):
    def program(rank: int) -> list[bool]:
        mesh = init_device_mesh("cpu", (2,))
        a, b = (parameter(mesh, numel=0) for _ in "ab")
        with over(a, b, unused="keep_none") as synchronizer:
            if rank == 0:
                a.to_local().sum().backward()
                synchronizer.wait()
            else:
                synchronizer.flush()
                synchronizer.wait()
            return [a.grad is None, b.grad is None]

    assert ranks.run(2, program) == [[False, True]] * 2
