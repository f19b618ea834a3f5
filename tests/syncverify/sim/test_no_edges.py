"""Calls that torch skips, or does not wait in, hide no race of a copy that is still under way."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.judge.ordering.races import judge_orderings
from tests.free_programs import play

Make = Callable[[], Any]
Call = Callable[[Any], object]


def ones(*size: int) -> torch.Tensor:
    return torch.ones(*size, device="cuda")


def of_host() -> torch.Tensor:
    return torch.zeros(3)


def pinned() -> torch.Tensor:
    return torch.zeros(3).pin_memory()


# What a program makes first, and its call while a copy to the host is under way.
CALLS: dict[str, tuple[Make, Call]] = {
    "to_cpu_of_the_host": (of_host, lambda x: x.to("cpu")),
    "to_cpu_later_of_the_host": (of_host, lambda x: x.to("cpu", non_blocking=True)),
    "to_cpu_and_dtype_of_the_host": (of_host, lambda x: x.to("cpu", torch.float64)),
    "tolist_of_the_host": (of_host, lambda x: x.tolist()),
    "module_to_the_host": (lambda: nn.Linear(2, 2), lambda module: module.to("cpu")),
    "module_to_the_device": (lambda: nn.Linear(2, 2).cuda(), lambda module: module.cuda()),
    "to_device_of_the_device": (lambda: ones(4), lambda x: x.to(x.device)),
    "contiguous": (lambda: ones(4), lambda x: x.contiguous()),
    "copy_of_itself": (lambda: ones(4), lambda x: x.copy_(x)),
    "to_the_device_from_pinned": (pinned, lambda x: x.cuda(non_blocking=True)),
    "copy_from_pageable": (of_host, lambda x: ones(3).copy_(x, non_blocking=True)),
    "cpu_of_nothing": (lambda: ones(0), lambda x: x.cpu()),
    "copy_of_nothing": (lambda: torch.zeros(0), lambda x: x.copy_(ones(0))),
    "tolist_of_nothing": (lambda: ones(0), lambda x: x.tolist()),
    "equal_of_the_same": (lambda: ones(4), lambda x: torch.equal(x, x)),
    "equal_of_two_shapes": (lambda: ones(4), lambda x: torch.equal(x, ones(5))),
    "wait_for_itself": (lambda: torch.cuda.current_stream(),
        lambda stream: stream.wait_stream(stream)),
    "new_event": (lambda: torch.cuda.Event(),
        lambda event: (event.wait(), event.query(), event.synchronize())),
    "event_of_before": (lambda: torch.cuda.current_stream().record_event(),
        lambda event: event.synchronize()),
    "other_stream": (lambda: torch.cuda.Stream(), lambda stream: stream.synchronize()),
    "own_record_stream": (lambda: ones(4),
        lambda x: x.record_stream(torch.cuda.current_stream())),
    "synchronize_of_the_cpu": (lambda: None, lambda _: torch.cpu.synchronize()),
    "two_waits": (lambda: dist.all_reduce(ones(4), async_op=True),
        lambda work: (work.wait(), work.wait())),
    "barrier_without_wait": (lambda: None, lambda _: dist.barrier(async_op=True).synchronize()),
    "future_of_a_barrier": (lambda: None,
        lambda _: dist.barrier(async_op=True).get_future().wait()),
    "barrier_of_gloo": (lambda: dist.new_group(backend="gloo"), dist.barrier),
}  # fmt: skip


def races(program: Callable[[], object]) -> int:
    machine = play(lambda _: program(), 2, device="cuda")
    traces = [recorder.trace for recorder in machine.recorders]
    return len(judge_orderings(traces).races)


@pytest.mark.parametrize(("make", "call"), CALLS.values(), ids=CALLS)
def test_a_call_without_a_wait_hides_no_race(make: Make, call: Call) -> None:
    def program() -> torch.Tensor:
        made = make()
        host = ones(64).to("cpu", non_blocking=True)
        call(made)
        return host.clone()

    assert races(program) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: of_host().cuda(),
        lambda: ones(3).cpu(),
        lambda: ones(3).nonzero(),
        lambda: of_host().copy_(ones(3), non_blocking=True),
        lambda: torch.equal(ones(3), ones(3)),
        lambda: torch.cuda.synchronize(),
        lambda: dist.barrier(),
    ],
)
def test_a_call_that_waits_orders_the_copy(call: Callable[[], object]) -> None:
    def program() -> torch.Tensor:
        host = ones(64).to("cpu", non_blocking=True)
        call()
        return host.clone()

    assert races(program) == 0


def test_the_future_of_all_futures_orders_nothing() -> None:
    def program(*, waits: bool) -> torch.Tensor:
        memory = ones(4)
        future = dist.all_reduce(memory, async_op=True).get_future()
        together = torch.futures.collect_all([future]).wait()
        for each in together:
            (each.wait if waits else each.value)()
        return memory * 2

    assert races(lambda: program(waits=True)) == 0
    assert races(lambda: program(waits=False)) == 2


def test_the_result_of_a_work_orders_nothing() -> None:
    def program(*, waits: bool) -> torch.Tensor:
        work = dist.all_reduce(ones(4), async_op=True)
        if waits:
            work.wait()
        return work.result()[0] * 2

    assert races(lambda: program(waits=True)) == 0
    assert races(lambda: program(waits=False)) == 2
