"""Ranks that run out of inputs: they flush, and so bring zeros, until all are done.

DDP's `join()` does this inside of a context. Here the program knows the largest number of
steps, and each rank without inputs calls `flush()`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.synchronizer import BucketNotReadyError
from tests.conformance.training import (
    assert_equal,
    descend,
    gradients,
    inputs_of,
    layers,
    refused,
    scaled,
    sum_over,
    train_step,
    whole_numbers,
)
from tests.conformance.wrappers import BySynchronizer, ours


def square_sum(model: Any, rank: int) -> Iterator[torch.Tensor]:
    yield model(inputs_of(rank, 1, 2)).square().sum()


def uneven_step(wrapped: BySynchronizer, losses: Any, rank: int, *, is_out: bool):
    """Train a step, without inputs where the rank is out of them."""
    if is_out:
        wrapped.synchronizer.flush()
        wrapped.finish()
    else:
        train_step(wrapped, losses, rank)


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 40, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(40, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.norm(self.first(x).reshape(-1, 4, 10)).reshape(-1, 40)
        return self.last(normal)


def convolutions() -> nn.Module:
    kernels = [(1, 2), (2, 3), (3, 4)]
    return nn.Sequential(
        nn.Unflatten(1, (1, 1, 2)),
        *(nn.Conv2d(one, other, 1) for one, other in kernels),
    )


MODELS = {
    "linear": lambda: layers(2, 8, bias=False),
    "normalized": lambda: whole_numbers(Normalized()),
    "convolutions": lambda: whole_numbers(convolutions()),
}


@pytest.mark.parametrize("steps", [(0, 2), (1, 3), (3, 1)])
@pytest.mark.parametrize("model", MODELS)
def test_ranks_out_of_inputs_bring_zeros(play, model, steps) -> None:
    def program(rank: int) -> list[float]:
        trained, alone = MODELS[model](), MODELS[model]()
        wrapped = ours(trained, unused="zeros", bucket_mb=0.0001)
        for step in range(max(steps)):
            alone.load_state_dict(trained.state_dict())
            active = [each for each in (0, 1) if step < steps[each]]
            expected = scaled(sum_over(alone, square_sum, active), 0.5)
            uneven_step(wrapped, square_sum, rank, is_out=rank not in active)
            assert_equal(gradients(trained), expected)
            descend(trained)
            wrapped.zero_grad()
        return [p.sum().item() for p in trained.parameters()]

    first, second = play(2, program)
    assert first == second


def test_ranks_out_of_inputs_with_a_hook_and_without_reductions(play) -> None:
    """Rank 0 has no inputs; the other rank accumulates in `no_sync()` as well."""

    def hook(buffer: torch.Tensor, group: dist.ProcessGroup):
        work = dist.all_reduce(buffer, group=group, async_op=True)
        return work.get_future().then(lambda _: buffer / 2)

    def program(rank: int) -> None:
        model = layers(2, 3, bias=False)
        wrapped = ours(model, unused="zeros", hook=hook)
        for step in range(3):
            num_backwards = 2 if step else 1
            own = sum_over(model, square_sum, [1])
            expected = scaled(own, num_backwards / 2)
            if rank and step:
                with wrapped.no_sync():
                    next(square_sum(model, rank)).backward()
            uneven_step(wrapped, square_sum, rank, is_out=rank == 0)
            assert_equal(gradients(model), expected)
            wrapped.zero_grad()

    play(2, program)


def test_a_rank_that_stops_without_a_policy_is_refused(play) -> None:
    """With `unused="error"` no rank flushes parameters without a gradient."""

    def program(_: int) -> None:
        wrapped = ours(layers(2, 3))
        with refused(BucketNotReadyError, "0.weight 0"):
            wrapped.synchronizer.flush()

    play(1, program)
