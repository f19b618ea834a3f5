"""Futures with devices that a program completes by itself, as communication hooks do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncverify import simulate

Future = torch.futures.Future[torch.Tensor]
Hook = Callable[[Any, Any], Future]


def mean_on_side_stream(bucket: dist.GradBucket, side: Any) -> torch.Tensor:
    buffer = bucket.buffer()
    with torch.cuda.stream(side):
        dist.all_reduce(buffer)
        buffer.div_(dist.get_world_size())
    return buffer


def completed_where_it_is_summed(side: Any, bucket: dist.GradBucket) -> Future:
    """Right: the event is on the stream that sums."""
    future = Future(devices=[bucket.buffer().device])
    side.wait_stream(torch.cuda.current_stream())
    buffer = mean_on_side_stream(bucket, side)
    with torch.cuda.stream(side):
        future.set_result(buffer)
    return future


def completed_on_another_stream(side: Any, bucket: dist.GradBucket) -> Future:
    """Wrong: the event is on a stream that does not sum."""
    future = Future(devices=[bucket.buffer().device])
    side.wait_stream(torch.cuda.current_stream())
    future.set_result(mean_on_side_stream(bucket, side))
    return future


def completed_without_devices(side: Any, bucket: dist.GradBucket) -> Future:
    """Wrong: without devices there is no event."""
    future = Future()
    side.wait_stream(torch.cuda.current_stream())
    buffer = mean_on_side_stream(bucket, side)
    with torch.cuda.stream(side):
        future.set_result(buffer)
    return future


def completed_by_a_callback(_: Any, bucket: dist.GradBucket) -> Future:
    """Right: the event is on the stream of the callback, which waits for the sum."""
    future = Future(devices=[bucket.buffer().device])
    work = dist.all_reduce(bucket.buffer(), async_op=True)

    def divide(summed: torch.futures.Future[list[torch.Tensor]]) -> None:
        (buffer,) = summed.value()
        future.set_result(buffer.div_(dist.get_world_size()))

    work.get_future().then(divide)
    return future


def trained_with(hook: Hook) -> Callable[[int], torch.Tensor]:
    def program(rank: int) -> torch.Tensor:
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(2, 1).cuda())
        model.register_comm_hook(torch.cuda.Stream(), hook)
        inputs = torch.full((1, 2), float(rank), device="cuda")
        model(inputs).sum().backward()
        gradient = model.module.weight.grad
        return gradient * 1

    return program


@pytest.mark.parametrize(
    "hook", [completed_where_it_is_summed, completed_by_a_callback]
)
def test_a_right_hook_is_silent(hook: Hook) -> None:
    simulation = simulate(trained_with(hook), 2)
    assert simulation.is_right, str(simulation)
    assert [each.tolist() for each in simulation.results] == [[[0.5, 0.5]]] * 2


@pytest.mark.parametrize(
    "hook", [completed_on_another_stream, completed_without_devices]
)
def test_a_hook_that_completes_elsewhere_has_a_race(hook: Hook) -> None:
    (found, *_) = simulate(trained_with(hook), 2).violations
    assert found.violation.property == "streams_order_shared_memory"


def doubled_aside(use: Callable[[Future], object]) -> Callable[[int], torch.Tensor]:
    def program(rank: int) -> torch.Tensor:
        tensor, side = torch.ones(2, device="cuda"), torch.cuda.Stream()
        future = Future(devices=[tensor.device])
        side.wait_stream(torch.cuda.current_stream())
        assert not future.done()
        with torch.cuda.stream(side):
            future.set_result(tensor.mul_(2))
        assert future.done()
        use(future)
        return tensor + 1

    return program


def test_a_wait_orders_and_a_value_does_not() -> None:
    assert simulate(doubled_aside(lambda future: future.wait()), 1).is_right
    then = simulate(doubled_aside(lambda f: f.then(lambda g: g.value()).wait()), 1)
    assert then.is_right
    assert not simulate(doubled_aside(lambda future: future.value()), 1).is_right


def test_an_error_is_raised_at_the_wait() -> None:
    def program(rank: int) -> None:
        future = Future(devices=[torch.device("cuda")])
        future.set_exception(ValueError("no bucket"))
        with pytest.raises(ValueError, match="no bucket"):
            future.wait()

    assert simulate(program, 1).is_right


def test_a_wait_for_no_result_is_refused() -> None:
    def program(rank: int) -> None:
        Future(devices=[torch.device("cuda")]).wait()

    refused = simulate(program, 1).refused
    assert "does not simulate a wait for a future that has no result yet" in refused
