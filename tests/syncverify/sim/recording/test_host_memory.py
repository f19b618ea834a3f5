"""Memory of the host that copies fill: pinned buffers, and results of non-blocking copies."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from syncverify.judge.ordering.races import Race
from syncverify.judge.ordering.remedies import disorders
from syncverify.trace.records import Access, MemoryUse, TraceRecord

Program = Callable[[int], object]


def unordered(trace: list[TraceRecord]) -> list[tuple[str, str]]:
    """List the second operator of each race, without its overload, and the remedy."""
    return [
        (_operator(first.second), str(each.remedy).partition(" before")[0])
        for each in disorders([trace])
        if isinstance(first := each.found[0], Race)
    ]


def _operator(use: MemoryUse) -> str:
    return use.operator.split(".")[1] if isinstance(use, Access) else ""


def read_as_an_array(_: int) -> None:
    host = torch.ones(4).to("cpu", non_blocking=True)
    host.numpy()


def read_as_a_scalar_of_a_kernel(_: int) -> None:
    device = torch.ones(4)
    norm = device.norm().to("cpu", non_blocking=True)
    device.mul_(norm)


def reduced_while_another_stream_copies(_: int) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        host = torch.ones(4).to("cpu", non_blocking=True)
    work = dist.all_reduce(host, async_op=True)
    work.wait()


def refilled_from_other_memory_of_the_host(_: int) -> None:
    host = torch.ones(4).cpu()
    pinned = torch.empty(4, pin_memory=True)
    for _round in range(2):
        pinned.copy_(host)
        torch.zeros(4).copy_(pinned, non_blocking=True)


def flag_by_position(_: int) -> None:
    device = torch.ones(4)
    device.to("cpu", device.dtype, True).add_(1)


def to_the_place_of_another_tensor(_: int) -> None:
    other = torch.empty(1, pin_memory=True)
    torch.ones(4).to(other, non_blocking=True).add_(1)


FOUND = {
    reduced_while_another_stream_copies: ("", "insert `stream 1.synchronize()`"),
    refilled_from_other_memory_of_the_host: ("copy_", "insert `default.synchronize()`"),
    flag_by_position: ("add_", "insert `default.synchronize()`"),
    to_the_place_of_another_tensor: ("add_", "insert `default.synchronize()`"),
    read_as_an_array: ("numpy", "insert `default.synchronize()`"),
    read_as_a_scalar_of_a_kernel: ("mul_", "insert `default.synchronize()`"),
}


@pytest.mark.parametrize("program", FOUND, ids=lambda program: program.__name__)
def test_a_use_by_the_host_during_a_copy_is_a_race(traced, program: Program) -> None:
    assert unordered(traced(program)) == [FOUND[program]]


def blocked(_: int) -> None:
    pinned = torch.empty(4, pin_memory=True)
    pinned.copy_(torch.ones(4))
    pinned.mul_(2)
    torch.zeros(4).copy_(pinned)
    pinned.zero_()


def copied_back_on_the_same_stream(_: int) -> None:
    device = torch.ones(4)
    host = device.to("cpu", non_blocking=True)
    back = host.to(device.device, non_blocking=True)
    device.copy_(host, non_blocking=True)
    back.add_(device)


def reduced_on_the_host(_: int) -> None:
    pinned = torch.zeros(4, pin_memory=True)
    pinned.fill_(1)
    work = dist.all_reduce(pinned, async_op=True)
    work.wait()
    pinned.add_(1)


def pageable_memory_is_copied_before_the_call_returns(_: int) -> None:
    host = torch.ones(4).cpu()
    device = torch.zeros(4).copy_(host, non_blocking=True)
    host.zero_()
    host.copy_(device, non_blocking=True)
    host.add_(1)


def memory_of_the_host_as_on_a_cpu(_: int) -> None:
    """A program for CPUs alone mixes them; a GPU would refuse."""
    side = torch.cuda.Stream()
    device = torch.ones(4)
    host = device.cpu()
    device.mul_(2)
    device.add_(host)
    host.zero_()
    host.add_(torch.ones(4))
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
    host.sum()


def scalar_of_the_host_as_on_a_cpu(_: int) -> None:
    """A program for CPUs alone masks a norm of its device in place; a GPU would refuse."""
    device = torch.ones(4)
    norm = device.norm().to("cpu")
    norm.masked_fill_(norm.isinf(), torch.tensor(-1.0, device="cpu"))
    torch.stack([norm]).sum().item()


def pinned_copy_of_host_memory(_: int) -> None:
    host = torch.ones(4).cpu()
    pinned = host.pin_memory()
    assert pinned.pin_memory() is pinned
    assert not host.is_pinned()
    torch.zeros(4).copy_(pinned, non_blocking=True)
    host.zero_()


RIGHT = (
    pageable_memory_is_copied_before_the_call_returns,
    memory_of_the_host_as_on_a_cpu,
    scalar_of_the_host_as_on_a_cpu,
    pinned_copy_of_host_memory,
    blocked,
    copied_back_on_the_same_stream,
    reduced_on_the_host,
)


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_a_right_use_of_host_memory_is_no_race(traced, program: Program) -> None:
    assert unordered(traced(program)) == []
