"""`zero_grad(set_to_none=True)`: first gradients overwrite the leftovers."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import (
    GradientMismatchError,
    GradientSynchronizer,
    ReplacedGradientError,
    SynchronizerConfig,
)
from syncverify.synchronizer.bucket.bucket import PIECE_BYTES
from tests.programs import local, placed


def dtensor(mesh: Any, placement: Any) -> nn.Parameter:
    local = torch.zeros(4, 2)
    return placed(local, mesh, placement)


def accumulate(parameters: list[nn.Parameter], value: float) -> None:
    torch.stack([local(p).sum() * value for p in parameters]).sum().backward()


def values(parameters: list[nn.Parameter]) -> list[float | None]:
    return [
        None if p.grad is None else local(p.grad).unique().item() for p in parameters
    ]


@pytest.mark.parametrize(("unused", "nothing"), [("zeros", 0), ("keep_none", None)])
def test_what_an_earlier_step_left_is_never_reduced(ranks, unused, nothing) -> None:
    def program(rank: int) -> list[Any]:
        mesh = init_device_mesh("cpu", (2,))
        used, half, idle = group = [dtensor(mesh, Replicate()) for _ in range(3)]
        alone = nn.Parameter(torch.zeros(3))
        group.append(alone)
        config = SynchronizerConfig(unused=unused)
        with GradientSynchronizer([group], 1, 1, config=config) as synchronizer:
            accumulate(group, 7)
            synchronizer.wait()
            synchronizer.zero_grad(set_to_none=True)
            accumulate([used, half] if rank else [used], 1)
            synchronizer.wait()
            return values([used, half, idle, alone])

    assert ranks.run(2, program) == [[2, 1, nothing, nothing]] * 2


def test_a_large_gradient_is_in_the_buffer_before_the_next_one_comes(one_rank) -> None:
    early, late = (nn.Parameter(torch.ones(PIECE_BYTES // 4)) for _ in range(2))
    seen: list[torch.Tensor | None] = []
    late.register_post_accumulate_grad_hook(lambda _: seen.append(early.grad))
    with GradientSynchronizer([[early, late]], 1, 1) as synchronizer:
        for step in range(3):
            (early * (late * step).sum()).sum().backward()
            synchronizer.wait()
            assert seen[-1] is early.grad
            assert early.grad is not None
            assert early.grad.unique().item() == step * PIECE_BYTES / 4
            synchronizer.zero_grad(set_to_none=True)


def test_a_none_of_the_user_is_no_none_of_ours(one_rank) -> None:
    parameter = nn.Parameter(torch.zeros(3))
    with GradientSynchronizer([[parameter]], 1, 1) as synchronizer:
        synchronizer.zero_grad(set_to_none=True)
        accumulate([parameter], 1)
        parameter.grad = None
        with pytest.raises(ReplacedGradientError):
            synchronizer.wait()
        synchronizer.zero_grad()


def test_a_gradient_of_another_dtype_is_refused(one_rank) -> None:
    parameter = nn.Parameter(torch.zeros(3))
    with GradientSynchronizer([[parameter]], 1, 1) as synchronizer:
        synchronizer.zero_grad(set_to_none=True)
        parameter.data = parameter.data.double()
        with pytest.raises(GradientMismatchError) as caught:
            accumulate([parameter], 1)
        assert str(caught.value).splitlines()[1:3] == [
            "  expected: torch.float32 of shape (3,) on cpu",
            "  got:      torch.float64 of shape (3,) on cpu",
        ]
        parameter.data = parameter.data.float()
        synchronizer.zero_grad()


def test_a_gradient_that_is_placed_otherwise_is_placed_as_a_sum_would_be(ranks) -> None:
    """A sharded parameter with a gradient that arrives whole: DTensor's add takes the shard."""

    def program(rank: int) -> list[Any]:
        mesh = init_device_mesh("cpu", (2,))
        parameter = dtensor(mesh, Shard(0))
        whole = torch.arange(16.0).view(8, 2)
        gradient = DTensor.from_local(whole, mesh, [Replicate()], run_check=False)
        found = []
        with GradientSynchronizer([[parameter]], 1, 1) as synchronizer:
            for _ in range(2):  # beside zeros, then beside None
                parameter.backward(gradient)
                synchronizer.wait()
                assert parameter.grad is not None
                found.append(local(parameter.grad).flatten().tolist())
                synchronizer.zero_grad(set_to_none=True)
        return found

    for rank, found in enumerate(ranks.run(2, program)):
        assert found == [[float(8 * rank + i) for i in range(8)]] * 2


class Idle(torch.autograd.Function):
    """An expert that got no token: its backward returns nothing for its weights."""

    @staticmethod
    def forward(_: Any, weights: torch.Tensor) -> torch.Tensor:
        return weights.sum()

    @staticmethod
    def backward(_: Any, __: torch.Tensor) -> None:
        return None


@pytest.mark.parametrize(
    ("unused", "nothing"), [("error", 0), ("zeros", 0), ("keep_none", None)]
)
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("bucket_size_mb", [1, 2**-20])
def test_an_undefined_gradient_counts_as_zeros(
    ranks, unused, nothing, bucket_size_mb, *, set_to_none: bool
) -> None:
    def program(rank: int) -> list[Any]:
        group = [nn.Parameter(torch.zeros(3)) for _ in range(3)]
        everywhere, here, nowhere = group
        config = SynchronizerConfig(unused=unused, process_group=dist.group.WORLD)
        found = []
        with GradientSynchronizer(
            [group], bucket_size_mb, 2, config=config
        ) as synchronizer:
            for _ in range(2):
                synchronizer.zero_grad(set_to_none=set_to_none)
                for micro_batch in range(2):
                    is_idle = rank == 1 or micro_batch == 0
                    loss = everywhere.sum() + Idle.apply(nowhere)
                    (loss + (Idle.apply(here) if is_idle else here.sum())).backward()
                synchronizer.wait()
                found.append(values(group))
        return found

    assert ranks.run(2, program) == [[[4, 1, nothing]] * 2] * 2
