"""Several backwards in a step, and reductions by a comm hook."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.futures import Future

from syncverify.synchronizer import (
    InvalidArgumentError,
    LateAccumulationError,
    SynchronizerConfig,
)
from tests.conformance.training import (
    assert_averages,
    assert_equal,
    gradients,
    inputs_of,
    layers,
    mean_over_ranks,
    refused,
    sum_over,
    train_step,
)
from tests.conformance.wrappers import ours

one_layer = partial(layers, 2, 2, bias=False)


def mean_hook(buffer: torch.Tensor, group: dist.ProcessGroup) -> Future[torch.Tensor]:
    """Divide before the sum."""
    halved = buffer / 2
    work = dist.all_reduce(halved, group=group, async_op=True)
    return work.get_future().then(lambda _: halved)


def chained_hook(
    buffer: torch.Tensor, group: dist.ProcessGroup
) -> Future[torch.Tensor]:
    """Double the sum in one callback, and divide it by four in the next one."""
    work = dist.all_reduce(buffer, group=group, async_op=True)
    doubled = work.get_future().then(lambda _: 2 * buffer)
    return doubled.then(lambda future: future.value() / 4)


@pytest.mark.parametrize("hook", [None, mean_hook, chained_hook])
def test_accumulates_without_a_reduction(play, wrap, hook) -> None:
    """Inside of `no_sync()`, gradients are the rank's own."""

    def program(rank: int) -> None:
        model = layers(2, 10, 50, 4, bias=False)
        wrapped = wrap(model, bucket_mb=0.001, hook=hook)
        with torch.no_grad(), wrapped.no_sync():
            wrapped(inputs_of(rank, 1, 2))

        def micro_batch(each: Any, owner: int, seed: int) -> torch.Tensor:
            return each(inputs_of(owner, 1, 2, seed=seed)).square().mean()

        def losses(each: Any, owner: int) -> Iterator[torch.Tensor]:
            yield micro_batch(each, owner, 0)
            yield micro_batch(each, owner, 1)

        for _ in range(2):
            expected = mean_over_ranks(model, losses)
            own = sum_over(model, lambda m, r: [micro_batch(m, r, 0)], [rank])
            with wrapped.no_sync():
                micro_batch(wrapped, rank, 0).backward()
            assert_equal(gradients(model), own)
            micro_batch(wrapped, rank, 1).backward()
            wrapped.finish()
            assert_equal(gradients(model), expected)
            wrapped.zero_grad()

    play(2, program)


def small_losses(model: Any, rank: int) -> Iterator[torch.Tensor]:
    yield model(inputs_of(rank, 2, 2)).sum()


def test_a_hook_that_averages_changes_nothing(play, wrap) -> None:
    assert_averages(play, wrap, one_layer, *[small_losses] * 20, hook=mean_hook)


def test_a_hook_that_is_no_function_is_refused() -> None:
    with refused(InvalidArgumentError, "comm_hook is not a function", "comm_hook=1"):
        SynchronizerConfig(comm_hook=1)


def test_a_step_without_zero_grad_is_refused(play) -> None:
    """DDP adds the next step to the means, and averages them again."""

    def program(rank: int) -> None:
        wrapped = ours(one_layer())
        train_step(wrapped, small_losses, rank)
        with refused(LateAccumulationError, "0.weight"):
            train_step(wrapped, small_losses, rank)

    play(2, program)
